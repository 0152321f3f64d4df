#!/usr/bin/env python3
"""Reads the rounds that compare.sh wrote to a folder (ours.N, torch.N) and prints the medians over the rounds.

Ratios are computed per round. A round in which other programs used the processors (marked by a tilde) counts only if all
rounds of that dtype are marked.
"""
import argparse
import json
import os
import re
import statistics

STEPS = re.compile(r"(?P<dtype>fp32|bf16) +(?P<disturbed>~?) +(?P<tokens>\d+) tokens, +(?P<steps>\d+) steps +"
                   r"(?P<tokens_per_second>\d+) +(?P<ms>\d+) +(?P<p10_ms>\d+)\.\.(?P<p90_ms>\d+) +"
                   r"(?:(?P<floor_ms>\d+) +(?P<products_ms>\d+) \+ +(?P<bytes_ms>\d+) +[\d.]+ +"
                   r"(?P<matrix_gflops>\d+) +(?P<copy_gb>\d+) +)?loss (?P<loss>[\d.]+)")


def read_steps(path):
    """The measurements by dtype."""
    found = {}
    with open(path) as file:
        for match in STEPS.finditer(file.read()):
            numbers = {key: float(value) for key, value in match.groupdict().items()
                       if key not in ("dtype", "disturbed") and value is not None}
            found[match["dtype"]] = {"disturbed": match["disturbed"] == "~", **numbers}
    if set(found) != {"fp32", "bf16"}:
        raise SystemExit(f"paired.py: {path} holds the steps of {', '.join(found) or 'no dtype'}, not of fp32 and bf16")
    return found


def read_head(path):
    """The lines before the steps: machine, compiler, versions."""
    with open(path) as file:
        return [line.strip() for line in file.read().split("GPT-2 124M")[0].splitlines()
                if not line.startswith(("A star", "marks")) and line.strip()]


def read_rounds(folder):
    count = sum(name.startswith("ours.") for name in os.listdir(folder))
    if count == 0:
        raise SystemExit(f"paired.py: {folder} holds no ours.1")
    return [{"ours": read_steps(f"{folder}/ours.{i}"), "torch": read_steps(f"{folder}/torch.{i}")}
            for i in range(1, count + 1)]


def summary(rounds, dtype):
    pairs = [(r["ours"][dtype], r["torch"][dtype]) for r in rounds]
    quiet = [(ours, peer) for ours, peer in pairs if not ours["disturbed"] and not peer["disturbed"]]
    counted = quiet or pairs
    ratios = [peer["ms"] / ours["ms"] for ours, peer in counted]

    def median(value):
        return statistics.median(value(ours, peer) for ours, peer in counted)
    return {"dtype": dtype, "rounds_counted": len(counted), "disturbed": not quiet,
            "ours_tokens_per_second": median(lambda ours, peer: ours["tokens"] / ours["ms"] * 1e3),
            "ours_ms": median(lambda ours, peer: ours["ms"]),
            "ours_step_per_floor": median(lambda ours, peer: ours["ms"] / ours["floor_ms"]),
            "torch_tokens_per_second": median(lambda ours, peer: peer["tokens"] / peer["ms"] * 1e3),
            "torch_ms": median(lambda ours, peer: peer["ms"]),
            "torch_step_per_floor": median(lambda ours, peer: peer["ms"] / ours["floor_ms"]),
            "torch_ms_per_ours_ms": {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}}


def table(summaries):
    text = "        ours: tokens/s   step ms  step/floor   PyTorch: tokens/s   step ms  step/floor   PyTorch/ours\n"
    for s in summaries:
        ratio = s["torch_ms_per_ours_ms"]
        text += (f"{s['dtype']:<6}{'~' if s['disturbed'] else ' '}{s['ours_tokens_per_second']:15.0f}{s['ours_ms']:10.0f}"
                 f"{s['ours_step_per_floor']:12.2f}{s['torch_tokens_per_second']:20.0f}{s['torch_ms']:10.0f}"
                 f"{s['torch_step_per_floor']:12.2f}{ratio['median']:15.2f} ({ratio['least']:.2f}..{ratio['most']:.2f})"
                 f" of {s['rounds_counted']} rounds\n")
    return text


def write_json(path, content):
    """Writes a file completely or not at all."""
    with open(path + ".tmp", "w") as file:
        json.dump(content, file, indent=1)
        file.write("\n")
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--json", metavar="FILE", help="output file for the results in full precision")
    o = parser.parse_args()
    rounds = read_rounds(o.folder)
    summaries = [summary(rounds, dtype) for dtype in ("fp32", "bf16")]
    print(table(summaries), end="")
    if o.json:
        write_json(o.json, {"job": "GPT-2 124M, whole training steps, batch 4, sequence 64",
                            "ours": read_head(f"{o.folder}/ours.1"), "torch": read_head(f"{o.folder}/torch.1"),
                            "medians": summaries, "rounds": rounds})


if __name__ == "__main__":
    main()
