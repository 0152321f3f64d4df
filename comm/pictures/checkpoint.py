"""checkpoint.svg: which rank writes which bytes of a checkpoint, and where they lie in a unit's flat buffer."""
import re

from svg import COMM, RANK_COLORS, WIDTH, Picture, check, number

UNIT = "model.layers.0"
BYTES = 4  # of an element in the file
LEFT, ACROSS, TALL = 12, WIDTH - 24, 24
FILE, ZOOM, FLAT = 84, 182, 306  # y of the bars


def constant(name):
    return int(re.search(rf"{name} = (\d+);", (COMM / "flat_layout.h").read_text())[1])


def flat_layout(saved):
    """The pieces of UNIT in its flat buffer, as rank, tensor, first element in the buffer and in the tensor, and elements; and
    the size of a shard. The order of the tensors is that of the writes, their offsets are those of FlatLayout, and the
    writes must follow from both."""
    tensors = {name: (begin, end) for name, begin, end in saved["tensors"] if name.startswith(UNIT + ".")}
    writes, order = [], []
    for write in saved["writes"]:
        for name, (begin, end) in tensors.items():
            if begin <= write[1] < end:
                writes.append(write)
                order += [name] if name not in order else []
    align, multiple, ranks = constant("kAlignment"), constant("kShardMultiple"), len(saved["shards"][UNIT])
    extents, end = [], 0
    for name in order:
        elements = (tensors[name][1] - tensors[name][0]) // BYTES
        extents.append((name, end, elements))
        end += -(-elements // align) * align
    shard = -(-end // (ranks * multiple)) * multiple
    pieces = []
    for rank in range(ranks):
        for name, first, elements in extents:
            begin, end = max(rank * shard, first), min((rank + 1) * shard, first + elements)
            if begin < end:
                pieces.append((rank, name, begin, begin - first, end - begin))
    follows = [[rank, tensors[name][0] + BYTES * at, BYTES * elements] for rank, name, _, at, elements in pieces]
    check(writes == follows, "the recorded writes do not follow from flat_layout.h; record.py records new ones")
    return pieces, shard


def parts(saved):
    """Embedding, blocks and head, whose tensors are neighbors in the file: their begin and end by name."""
    found = {}
    for name, begin, end in saved["tensors"]:
        part = re.match(r"(?:model\.)?(layers\.\d+|\w+)\.", name)[1]
        found[part] = (found.get(part, (begin,))[0], end)
    return found


def draw_file(p, saved):
    """The whole file; returns the x of an offset."""
    def x_of(offset):
        return LEFT + ACROSS * offset / saved["bytes"]

    p.text(LEFT, 50, "The file", "strong")
    for rank, offset, size in saved["writes"]:
        p.box("empty" if offset == 0 else RANK_COLORS[rank], x_of(offset), FILE, max(0.5, x_of(size) - LEFT), TALL, rx=0,
              note=f"rank {rank}: bytes {offset:,} to {offset + size - 1:,}")
    p.text(LEFT, FILE - 6, "header")
    for part, (begin, end) in parts(saved).items():
        if part == "norm":  # too thin for a name in its middle
            p.text(x_of(end), FILE - 6, part, "", "end")
        else:
            p.text((x_of(begin) + x_of(end)) / 2, FILE - 6, part, "", "middle")
        p.line("cut", x_of(begin), FILE - 3, x_of(begin), FILE + TALL)
    return x_of


def short(name):
    return name.split(".")[-2].removesuffix("_proj")


def draw(saved):
    writes = sorted((offset, offset + size) for _, offset, size in saved["writes"])
    check([0, *(end for _, end in writes)] == [*(begin for begin, _ in writes), saved["bytes"]], "writes overlap or leave gaps")
    pieces, shard = flat_layout(saved)
    ranks = len(saved["shards"][UNIT])
    size = shard * ranks
    p = Picture(f"model.safetensors, {saved['bytes']:,} bytes, written by {ranks} ranks at once", 408)
    p.legend(LEFT + ACROSS - 320, 50, [(color, f"rank {rank}", 84) for rank, color in enumerate(RANK_COLORS)])
    x_of = draw_file(p, saved)

    begin, end = parts(saved)[UNIT.removeprefix("model.")]
    p.path("zoom", f"M{number(x_of(begin))} {FILE + TALL + 2}H{number(x_of(end))}L{LEFT + ACROSS} {ZOOM - 22}H{LEFT}z")
    p.text(WIDTH / 2, ZOOM - 42, f"Bytes {begin:,} to {end - 1:,}: block 0", "strong", "middle")
    scale = ACROSS / (end - begin)
    in_file = {name: LEFT + (at - begin) * scale for name, at, _ in saved["tensors"]}
    for name, first, last in saved["tensors"]:
        if begin <= first < end and "norm" not in name:
            p.text(in_file[name] + (last - first) * scale / 2, ZOOM - 6, short(name), "", "middle")

    p.box("hatched", LEFT, FLAT, ACROSS, TALL, rx=0)
    cuts = []
    for rank, name, first, at, elements in pieces:
        x1, width1 = in_file[name] + BYTES * at * scale, max(2, BYTES * elements * scale)
        x2, width2 = LEFT + ACROSS * first / size, max(2, ACROSS * elements / size)
        p.path(f"ribbon {RANK_COLORS[rank]}",
               f"M{number(x1)} {ZOOM + TALL}h{number(width1)}L{number(x2 + width2)} {FLAT}h{number(-width2)}z")
        note = f"{name}, elements {at:,} to {at + elements - 1:,}"
        p.box(RANK_COLORS[rank], x1, ZOOM, width1, TALL, rx=0, note=note)
        p.box(RANK_COLORS[rank], x2, FLAT, width2, TALL, short(name) if width2 > 25 else "", rx=0, note=note)
        cuts += [(x1, ZOOM), (x2, FLAT)]
    for x, y in cuts:
        p.line("cut", x, y, x, y + TALL)
    for rank in range(ranks):
        x1, x2, y = LEFT + ACROSS * rank / ranks + 2, LEFT + ACROSS * (rank + 1) / ranks - 2, FLAT + TALL + 6
        p.path("link", f"M{number(x1)} {y}v5H{number(x2)}v-5")
        p.text((x1 + x2) / 2, y + 22, f"shard of rank {rank}: {shard:,} elements", "quiet", "middle")
    p.text(LEFT, FLAT + 72, f"The flat buffer of block 0, {size:,} elements", "strong")
    p.text(LEFT, FLAT + 90, "q, k, v, o, gate, up and down are projections; the thin lines are two norms. Hatched: padding, "
           "which is not in the file.", "quiet")
    return p
