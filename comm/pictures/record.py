#!/usr/bin/env python3
"""Records what draw.py draws, from runs of configs/tiny.toml, into recorded.json beside this file.

    comm/pictures/record.py [build/bin]

It needs mpirun and strace, and takes about ten seconds, on a machine that is otherwise idle. Two ranks train with a
trace, of which it keeps the step of median length. Four ranks save a checkpoint under strace, which sees the range of
every write.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORDED = pathlib.Path(__file__).with_name("recorded.json")
CONFIG = ROOT / "configs" / "tiny.toml"
PASSES = ("forward", "backward", "update", "wait")  # of the compute row; its other spans are ops inside them


def run(folder, *command, **options):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, capture_output=True, text=True,
                          **options)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    return done.stdout


def prepare(programs, folder):
    """Token files and tokenizer of this repository's text, where configs/tiny.toml expects them."""
    (folder / "data").mkdir()
    texts = sorted(path for path in ROOT.rglob("*") if path.suffix in (".md", ".h", ".cpp")
                   and not path.relative_to(ROOT).parts[0].startswith(("build", ".")))
    run(folder, programs / "prepare", "--out", "data/tiny.tok", "--eval-out", "data/tiny-eval.tok", "--tokenizer",
        "data/tiny-tokenizer", "--train-tokenizer", "2048", "--files-from", "-", input="\n".join(map(str, texts)))


def batch(programs, folder, ranks):
    """Ranks, micro-steps and lanes of a step, as --plan prints them."""
    plan = run(folder, programs / "train", CONFIG, "--plan", "--ranks", ranks)
    found = re.search(r"^batch +(\d+) sequences .* = (\d+) ranks? x (\d+) micro-steps? x (\d+) lanes? of (\d+)$", plan, re.M)
    return dict(zip(("sequences", "ranks", "micro_steps", "lanes", "lane_size"), map(int, found.groups())))


def checkpoint(programs, folder, ranks=4):
    """Tensors of model.safetensors, the range of each write in it by rank, and the shards of the units."""
    command = (f"exec strace -f -y -s 0 -e trace=pwrite64 -o writes.$OMPI_COMM_WORLD_RANK '{programs}/train' '{CONFIG}' "
               "--train.steps=2 --train.eval_every=0 --run.dir=saved")
    run(folder, "mpirun", "-np", ranks, "sh", "-c", command)
    content = (folder / "saved" / "step-2" / "model.safetensors").read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")  # where the header ends
    header = json.loads(content[8:data])
    tensors = [[name, *(data + offset for offset in header[name]["data_offsets"])] for name in header if name[0] != "_"]
    write = re.compile(r"step-2\.tmp/model\.safetensors>, .*, (\d+), (\d+)\) = (\d+)$", re.M)
    writes = []
    for rank in range(ranks):
        for size, offset, written in write.findall((folder / f"writes.{rank}").read_text()):
            assert size == written, "a write was cut short"
            writes.append([rank, int(offset), int(size)])
    shards = {}
    share = re.compile(r"^\[rank \d+\] step 1: (.*): [\d,]+ parameters, ([\d,]+) on this rank", re.M)
    for unit, owned in share.findall((folder / "saved" / "step1.txt").read_text()):
        shards.setdefault(unit, []).append(int(owned.replace(",", "")))
    return {"bytes": len(content), "header": data, "tensors": tensors, "writes": writes, "shards": shards}


def trace(programs, folder, ranks=2):
    """The step of median length of a trace: rank, row, name, begin and length in us of every span."""
    run(folder, "mpirun", "-np", ranks, programs / "train", CONFIG, "--train.steps=14", "--train.eval_every=0",
        "--run.trace=4:14", "--run.dir=traced", "--checkpoint.save_every=0")
    events = json.loads((folder / "traced" / "trace.json").read_text())["traceEvents"]
    rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = sorted(([e["pid"], rows[e["pid"], e["tid"]], e["name"], e["ts"], e["dur"]] for e in events if e["ph"] == "X"),
                   key=lambda span: span[3])
    steps = [span for span in spans if span[0] == 0 and span[1] == "steps"][1:]
    middle = statistics.median_low(span[4] for span in steps)
    step = next(span for span in steps if span[4] == middle)
    begin, end = step[3] - 1500, step[3] + step[4] + 500  # with what the step before has begun to gather
    drawn = [[rank, row, name, round(at - step[3], 1), round(length, 1)] for rank, row, name, at, length in spans
             if begin < at < end and (row in ("gather", "reduce") or row == "compute" and name.startswith(PASSES))]
    return {"step": step[2], "length": round(step[4], 1), "ranks": ranks, "spans": drawn}


def as_json(value, depth=0):
    """JSON with a line for each range, span or other item of a list."""
    if isinstance(value, dict) and depth < 2:
        return "{" + ",\n".join(f'"{key}": {as_json(item, depth + 1)}' for key, item in value.items()) + "}"
    if isinstance(value, list) and depth < 3:
        return "[\n" + ",\n".join(as_json(item, 3) for item in value) + "]"
    return json.dumps(value)


def main():
    programs = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "bin").resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(programs, folder)
        recorded = {"batches": [batch(programs, folder, ranks) for ranks in (4, 2, 1)],
                    "checkpoint": checkpoint(programs, folder), "trace": trace(programs, folder)}
    RECORDED.write_text(as_json(recorded) + "\n")


if __name__ == "__main__":
    main()
