"""lanes.svg: the tree that sums the lanes of a step, on several numbers of ranks."""
from svg import COMM, RANK_COLORS, Picture, check, number

# The index of a lane in comm/lanes.cpp, which lane_of() repeats.
SOURCE = """(group * groups.size + place) * options.lane_rounds() + round
                           : (group * options.lane_rounds() + round) * groups.size + place"""

LEFT, PANEL, GAP = 104, 246, 9
LEAVES, LEVEL = 206, 62  # y of the lanes, and the height of a level of the tree


def lane_of(batch, rank, micro, lane):
    """With sharded sums, in one group of ranks, where a lane is computed in one micro-step."""
    return (micro * batch["ranks"] + rank) * batch["lanes"] + lane


class Panel:
    """The lanes of a batch and their tree, from x0 to the right."""

    def __init__(self, picture, x0, batch):
        self.picture, self.x0, self.batch = picture, x0, batch
        self.count = batch["sequences"] // batch["lane_size"]
        self.column = PANEL / self.count
        # The rank and the micro-step that compute a lane.
        self.places = {lane_of(batch, rank, micro, lane): (rank, micro) for rank in range(batch["ranks"])
                       for micro in range(batch["micro_steps"]) for lane in range(batch["lanes"])}
        check(sorted(self.places) == list(range(self.count)), f"the lanes of {batch} are not 0 to {self.count - 1}")

    def draw(self):
        ranks = self.batch["ranks"]
        self.picture.box("track", self.x0, 38, PANEL, 288, rx=4)
        self.picture.text(self.x0 + PANEL / 2, 58, f"{ranks} rank" + "s" * (ranks > 1), "strong", "middle")
        self.tree(0, self.count)
        for micro in range(self.batch["micro_steps"]):
            lanes = [lane for lane, (_, its) in self.places.items() if its == micro]
            x1, x2, y = self.x0 + min(lanes) * self.column + 6, self.x0 + (max(lanes) + 1) * self.column - 6, LEAVES + 84
            self.picture.path("link", f"M{number(x1)} {y}v5H{number(x2)}v-5")
            self.picture.text((x1 + x2) / 2, y + 20, str(micro), "quiet", "middle")

    def tree(self, first, lanes):
        """Draws the sum of a number of lanes, and what it adds; returns the middle of its upper edge."""
        middle = self.x0 + (first + lanes / 2) * self.column
        if lanes == 1:
            return self.leaf(first, middle)
        y = LEAVES - LEVEL * (lanes.bit_length() - 1)
        for half in (first, first + lanes // 2):
            self.picture.line("link", middle, y, *self.tree(half, lanes // 2))
        over_ranks = len({self.places[lane][1] for lane in range(first, first + lanes)}) == 1
        words = self.sum_of(first, lanes)
        width = 26 + 7 * len(words)
        self.picture.box("red" if over_ranks else "sum", middle - width / 2, y - 13, width, 26, words,
                         text_style="on" if over_ranks else "", rx=13)
        return middle, y - 13

    def sum_of(self, first, lanes):
        if lanes == 2:
            return f"{first} + {first + 1}"
        return f"({self.sum_of(first, lanes // 2)}) + ({self.sum_of(first + lanes // 2, lanes // 2)})"

    def leaf(self, lane, middle):
        rank = self.places[lane][0]
        self.picture.box(RANK_COLORS[rank], middle - 26, LEAVES - 12, 52, 24, f"lane {lane}")
        size = self.batch["lane_size"]
        for i in range(size):
            x = middle - 26 + 28 * i
            self.picture.box("empty", x, LEAVES + 24, 24, 24, str(lane * size + i), text_style="quiet")
            self.picture.line("link", x + 12, LEAVES + 24, x + 12, LEAVES + 13)
        self.picture.text(middle, LEAVES + 74, f"rank {rank}", "", "middle")
        return middle, LEAVES - 12


def draw(batches):
    check(SOURCE in (COMM / "lanes.cpp").read_text(), "lanes.cpp assigns lanes in another way than lanes.py")
    p = Picture("The sum over the lanes of a step, on 4, 2 and 1 ranks", 364)
    panels = [Panel(p, LEFT + i * (PANEL + GAP), batch) for i, batch in enumerate(batches)]
    root = LEAVES - LEVEL * (panels[0].count.bit_length() - 1)
    for y, words, style in ((root + 4, "gradient", "strong"), (root + 19, "of the step", "quiet"),
                            (LEAVES + 4, "lanes", "strong"), (LEAVES + 40, "sequences", "quiet"),
                            (LEAVES + 74, "computed by", "quiet"), (LEAVES + 104, "in micro-step", "quiet")):
        p.text(12, y, words, style)
    for panel in panels:
        panel.draw()
    p.legend(LEFT, 350, (("red", "summed over ranks, each of which adds its shard of all lanes", 430),
                         ("sum", "summed over micro-steps on a rank", 300)))
    return p
