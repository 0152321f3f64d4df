"""unit.svg: the states of a unit, and which stream waits for which, as comm/sharded_unit.cpp has them."""
import re

from svg import COMM, WIDTH, Picture, check

# The events of a unit with sharded parameters: function and stream of the record, and of the wait.
EVENTS = {
    ("value_slot_->free", "release_slot compute", "prefetch gather"),
    ("gathered_", "prefetch gather", "acquire compute"),
    ("sums_->slot(micro)->free", "reduce reduce", "grads compute"),
    ("ready_", "reduce compute", "reduce reduce"),
    ("reduced_", "reduce reduce", "wait_reduced compute"),
    ("updated_", "publish compute", "prefetch gather"),
}
# Those of other policies, which are not drawn: every rank keeps all parameters, or all frozen ones.
OTHER_EVENTS = {
    ("updated_", "publish compute", "publish gather"),
    ("updated_", "publish compute", "publish_all gather"),
    ("gathered_", "publish gather", "acquire compute"),
    ("gathered_", "publish_all gather", "acquire compute"),
}
STATES = {"prefetch": "gathering", "acquire": "gathered", "release_slot": "sharded"}  # set by these functions

LEFT, END, HEIGHT = 86, WIDTH - 12, 32
ROWS = {"gather": 136, "compute": 210, "reduce": 284}
# The calls of a step, from left to right; AGAIN and AHEAD are the second and third prefetch.
FIRST, ACQUIRED, RELEASED, AGAIN, BACKWARD, DONE, WAITED, PUBLISHED, AHEAD = 150, 264, 334, 436, 526, 598, 710, 764, 796
CALLS = ((FIRST, ["prefetch"]), (ACQUIRED, ["acquire"]), (RELEASED, ["release"]), (AGAIN, ["prefetch"]),
         (BACKWARD, ["acquire", "grads"]), (DONE, ["release", "reduce"]), (WAITED, ["wait_reduced"]),
         (PUBLISHED, ["", "publish"]), (AHEAD, ["prefetch"]))
BOXES = (  # row, style, words, begin, end
    ("gather", "green", "all-gather", FIRST, 240), ("gather", "green", "all-gather", AGAIN, 506),
    ("gather", "green", "all-gather", AHEAD, END), ("gather", "dashed", "others", 354, 416),
    ("gather", "dashed", "others", 620, 700), ("compute", "dashed", "others", LEFT + 2, 132),
    ("compute", "dashed", "other units", 138, 258), ("compute", "blue", "forward", ACQUIRED, RELEASED),
    ("compute", "dashed", "other units", 340, 416), ("compute", "dashed", "other units", 422, 520),
    ("compute", "orange", "backward", BACKWARD, DONE), ("compute", "dashed", "other units", 604, 704),
    ("compute", "purple", "update", WAITED, PUBLISHED), ("reduce", "dashed", "others", 436, 506),
    ("reduce", "red", "sum", 620, 682))
ARROWS = (  # event, x of its record and of the wait for it, the side where its name stands
    ("value_slot_->free", 132, FIRST, "left"), ("gathered_", 240, ACQUIRED, "right"),
    ("value_slot_->free", RELEASED, 354, "right"), ("value_slot_->free", 416, AGAIN, "left"),
    ("gathered_", 506, BACKWARD, "right"), ("sums_->slot(micro)->free", 506, BACKWARD, "left"),
    ("value_slot_->free", DONE, 620, "right"), ("ready_", DONE, 620, "right"), ("reduced_", 682, WAITED, "right"),
    ("updated_", PUBLISHED, AHEAD, "right"))
NOTES = ("An arrow is an event: one stream records it, the other waits for it. Dashed: other units, with which this one "
         "shares buffers.",
         "free: nothing reads the buffer any more; gathered: the parameters of all ranks have arrived;",
         "ready: the gradients are written; reduced: their sums are complete; updated: the optimizer has written the shard")


def check_source():
    """The records, waits and states of the source must be those above."""
    source = (COMM / "sharded_unit.cpp").read_text()
    records, waits, states = set(), set(), {}
    for name, body in re.findall(r"^\S[^\n]* ShardedUnit::(\w+)\([^{]*\{\n(.*?)^\}", source, re.M | re.S):
        for stream, verb, event in re.findall(r"([\w.()]+)\.(record|wait)\((.+?)\);", body):
            stream = {"fetcher": "gather", "shards_.storer(reduce)": "reduce"}.get(stream, stream)
            (records if verb == "record" else waits).add((event, f"{name} {stream}"))
        states |= {name: state for state in re.findall(r"state_ = State::(\w+);", body)}
    known = EVENTS | OTHER_EVENTS
    for verb, found, drawn in (("records", records, {(event, record) for event, record, _ in known}),
                               ("waits for", waits, {(event, wait) for event, _, wait in known})):
        check(found == drawn, f"sharded_unit.cpp {verb} other events than unit.py: {found ^ drawn}")
    check(states == STATES, f"sharded_unit.cpp sets other states than unit.py: {states}")
    declared = re.search(r"enum class State \{ (.*?) \}", (COMM / "sharded_unit.h").read_text())[1].split(", ")
    check(sorted(declared) == sorted([*STATES.values()]), f"sharded_unit.h has other states than unit.py: {declared}")


def draw():
    check_source()
    p = Picture("The life of a unit in one step", 386)
    p.text(12, 54, "calls", "strong")
    p.text(12, 104, "state", "strong")
    for row, top in ROWS.items():
        p.box("track", LEFT, top - 5, END - LEFT, HEIGHT + 10)
        p.text(12, top + 13, row, "strong")
        p.text(12, top + 28, "stream", "quiet")
    for x, calls in CALLS:
        for line, call in enumerate(calls):
            p.text(x, 54 + 15 * line, call, "code", "middle")
        p.line("link broken", x, 44 + 15 * len(calls), x, ROWS["reduce"] + HEIGHT)
    changes = (LEFT, FIRST, ACQUIRED, RELEASED, AGAIN, BACKWARD, DONE, AHEAD, END)
    for i, (begin, end) in enumerate(zip(changes, changes[1:])):
        state = ("sharded", "gathering", "gathered")[i % 3]
        style = {"sharded": "empty", "gathering": "pale", "gathered": "green"}[state]
        p.box(style, begin, 88, end - begin, 24, state, text_style="on" if state == "gathered" else "")
    for row, style, words, begin, end in BOXES:
        p.box(style, begin, ROWS[row], end - begin, HEIGHT, words, text_style="quiet" if style == "dashed" else "on")
    for event, x1, x2, side in ARROWS:
        record, wait = next(places for name, *places in EVENTS if name == event)
        y1, y2 = (ROWS[place.split()[1]] for place in (record, wait))
        y1, y2 = (y1 + HEIGHT, y2) if y1 < y2 else (y1, y2 + HEIGHT)
        p.line("arrow", x1, y1, x2, y2)
        name = re.sub(r".*->|_$", "", event)
        if side == "left":
            p.text(min(x1, x2) - 1, (y1 + y2) / 2 + 4, name, "quiet", "end")
        else:
            p.text(max(x1, x2) + 4, (y1 + y2) / 2 + 4, name, "quiet")
    for line, words in enumerate(NOTES):
        p.text(12, 344 + 17 * line, words, "quiet")
    return p
