"""step.svg: a step of a real trace, and a part of it with what waits for what."""
from svg import WIDTH, Picture, number

ROWS = ("compute", "gather", "reduce")
LEFT, RIGHT = 118, WIDTH - 12
LEGEND = (("blue", "F forward", 100), ("orange", "B backward", 112), ("green", "G gather", 98), ("red", "R exchange", 110),
          ("sum", "sum", 62), ("purple", "U norm, update", 140), ("wait", "wait", 66))
BEFORE = 500  # us before the step, in which the last one gathers for it


class Span:
    def __init__(self, layers, rank, row, name, begin, length):
        self.rank, self.row, self.begin, self.end = rank, row, begin, begin + length
        self.note = f"{name}, {length:,.0f} us"
        word, _, of = name.partition(" ")
        if row == "compute":
            layer = {0: "E", layers - 1: "H"}.get(int(of), str(int(of) - 1)) if of else ""
            self.style, letter = {"forward": ("blue", "F"), "backward": ("orange", "B"), "update": ("purple", "U"),
                                  "wait": ("wait", "")}[word]
        else:
            layer = {"root, first": "E", "root, last": "H"}.get(of, of.removeprefix("model.layers."))
            self.style, letter = ("green", "G") if row == "gather" else ("red", "R") if of else ("sum", "")
        self.layer, self.label = layer, letter + layer

    def is_on(self, other):
        return (self.rank, self.row) == (other.rank, other.row)


class Panel:
    """The rows of some ranks from `begin` to `end` in us."""

    def __init__(self, picture, spans, ranks, top, begin, end, height, pitch):
        self.picture, self.begin, self.end, self.height = picture, begin, end, height
        self.spans = [span for span in spans if span.rank in ranks and span.end > begin and span.begin < end]
        self.tops = {(rank, row): top + i * (3 * pitch + 10) + ROWS.index(row) * pitch for i, rank in enumerate(ranks)
                     for row in ROWS}
        self.ticks(top - 4, max(self.tops.values()) + height + 5)
        for (rank, row), y in self.tops.items():
            if row == "compute":
                picture.text(12, y + height / 2 + 4, f"rank {rank}", "strong")
            picture.text(LEFT - 6, y + height / 2 + 4, row, "quiet", "end")
            picture.box("track", LEFT, y, RIGHT - LEFT, height)
        for span in sorted(self.spans, key=lambda span: span.style == "wait"):  # waits lie inside other spans
            self.draw(span)

    def x_of(self, at):
        return LEFT + (RIGHT - LEFT) * (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)

    def ticks(self, top, bottom):
        step = next(step for step in (1, 2, 5, 10, 20) if (self.end - self.begin) / 1000 / step <= 12)
        for at in range(0, int(self.end / 1000) + 1, step):
            x = self.x_of(at * 1000)
            self.picture.line("link faint", x, top, x, bottom)
            if x < RIGHT - 24:
                self.picture.text(x, bottom + 12, f"{at} ms", "quiet", "middle")

    def draw(self, span):
        x, end, y = self.x_of(span.begin), self.x_of(span.end), self.tops[span.rank, span.row]
        width = max(1, end - x - 0.5)
        self.picture.box(span.style, x, y, width, self.height, note=span.note, rx=min(2, int(width / 3)))
        waits = [s.end for s in self.spans if s.style == "wait" and s.is_on(span) and span.begin < s.end < span.end]
        room = end - self.x_of(max([span.begin, *waits]))
        if room > 4 + 8 * len(span.label):
            self.picture.text(end - room / 2, y + self.height / 2 + 4, span.label, "on", "middle")

    def arrow(self, begin, row, end, other):
        y1, y2 = self.tops[0, row], self.tops[0, other]
        y1, y2 = (y1 + self.height, y2) if y1 < y2 else (y1, y2 + self.height)
        self.picture.line("arrow", self.x_of(begin), y1, self.x_of(end), y2)


def draw_waits(panel, spans):
    """Arrows between the rows of rank 0, and the names of its gathers."""
    passes = [span for span in spans if span.rank == 0 and span.row == "compute" and span.layer]
    served = []  # the passes that the gathers of blocks serve; gathers fill two buffers in turn
    thin = []
    for span in panel.spans:
        if span.style == "red":
            panel.arrow(span.begin, "compute", span.begin, "reduce")
        if span.style != "green":
            continue
        its = next(pass_ for pass_ in passes if pass_.layer == span.layer and pass_.end > span.end)
        if its.begin < panel.end:
            panel.arrow(span.end, "gather", its.begin + 40, "compute")
        if span.layer.isdigit():
            served.append(its)
            if len(served) > 2 and served[-3].end < span.begin:
                panel.arrow(served[-3].end, "compute", span.begin, "gather")
        if panel.x_of(span.end) - panel.x_of(span.begin) < 20:
            thin.append(span)
    while thin:  # neighbors share a line
        near = [thin.pop(0)]
        while thin and panel.x_of(thin[0].begin) - panel.x_of(near[-1].end) < 20:
            near.append(thin.pop(0))
        names, x = " ".join(span.label for span in near), panel.x_of(near[-1].end) + 4
        if not any(span.row == "gather" and x - 4 < panel.x_of(span.begin) < x + 8 * len(names) for span in panel.spans):
            panel.picture.text(x, panel.tops[0, "gather"] + 17, names)


def draw(trace):
    layers = 1 + max(int(name.split()[1]) for _, _, name, *_ in trace["spans"] if name.startswith("backward"))
    spans = [Span(layers, *span) for span in trace["spans"]]
    p = Picture(f"A step of configs/tiny.toml on {trace['ranks']} ranks of a CPU: {trace['length'] / 1000:.1f} ms", 490)
    p.legend(12, 48, LEGEND)
    p.text(12, 69, "E: embedding, 0 to 3: blocks, H: head", "quiet")
    above = Panel(p, spans, range(trace["ranks"]), 106, -BEFORE, trace["length"] + 400, 18, 21)
    starts = [span.begin for span in spans if span.rank == 0 and span.label == "FE" and span.begin < trace["length"]]
    update = next(span.begin for span in spans if span.rank == 0 and span.label == "U" and span.begin > 0)
    for micro, (begin, end) in enumerate(zip(starts, [*starts[1:], update])):
        x1, x2 = above.x_of(begin) + 1, above.x_of(end) - 1
        p.path("link", f"M{number(x1)} 99v-5H{number(x2)}v5")
        p.text((x1 + x2) / 2, 89, f"micro-step {micro}", "quiet", "middle")
    # The lower panel ends soon after the second backward pass of a block has begun.
    end = [span.begin for span in spans if span.rank == 0 and span.style == "orange"][2] + 1500
    p.path("zoom", f"M{number(above.x_of(-BEFORE))} 264H{number(above.x_of(end))}L{RIGHT} 296H{LEFT}z")
    draw_waits(Panel(p, spans, [0], 304, -BEFORE, end, 26, 52), spans)
    p.text(12, 478, "Arrows up: a pass waits for its gather. Down: a gather waits until its buffer is free, an exchange for "
           "the gradients.", "quiet")
    return p
