#!/usr/bin/env python3
"""Times our bench and PyTorch in turns on one GPU, for each op and each training step: ours, PyTorch, ours, PyTorch.

Prints a line for each as it comes and writes every number to a JSON file, whole after each line. What there was no time
for is listed."""
import argparse
import json
import os
import statistics
import subprocess
import time

import torch

import torch_llama
import torch_ops
from interleave import Clocks, Ours, Timer, compared, spread

ROUNDS = 2
CASE_SECONDS, STEP_SECONDS = 0.25, 2.0
SELECTED_CASE_SECONDS = 0.1  # with --ops
OPS_SHARE = 0.6  # fraction of the time; training steps get the rest
LEAST_FOR_A_STEP = 20  # in seconds; a step benchmark is not started with less
# Model, sequence length, sequences, micro-steps, recompute; the most important first. 16 micro-steps of 32 x 1024 tokens are
# the protocol of LLM.Q. Both systems are in memory at the same time, for which 80 GB suffice with half of the sequences.
STEPS = [("qwen2.5-1.5b", 4096, 4, 1, False), ("qwen2.5-0.5b", 1024, 16, 1, False), ("qwen2.5-0.5b", 1024, 32, 16, False),
         ("llama3-8b-4-layers", 4096, 2, 1, False), ("qwen2.5-0.5b", 8192, 2, 1, False), ("qwen2.5-1.5b", 1024, 16, 1, False),
         ("llama3-8b-4-layers", 8192, 1, 1, False), ("qwen2.5-0.5b", 4096, 4, 1, False), ("qwen2.5-1.5b", 8192, 2, 1, False),
         ("llama3-8b-4-layers", 1024, 8, 1, False)]
SMALL_STEPS = [("tiny", 16, 2, 1, False), ("tiny", 16, 2, 3, False)]
# How the step of torch_llama.py differs from ours.
STEP_PEER = "bf16 gradients, no fixed order in attention"
SMALL_OPS = ["rmsnorm_forward 512 x 2048 bf16", "rmsnorm_backward 512 x 2048 dx+= bf16", "cross_entropy_backward 4 x 32768 bf16",
             "attention_backward 70 x 2/1 x 256 causal bf16", "adamw 65536 bf16"]


class Report:
    """The output on the terminal and in the file."""

    def __init__(self, o):
        self.path, self.clocks = o.json, Clocks()
        self.content = {"device": torch.cuda.get_device_name() if o.device == "cuda" else "cpu", "torch": torch.__version__,
                        "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "rounds": ROUNDS,
                        "small": o.device == "cpu", "ops": [], "steps": [], "not_run": []}
        print(f"torch {torch.__version__} on {self.content['device']}; times and peer/ours are medians of {ROUNDS} interleaved rounds\n"
              f"{'':<52} {'ours ms':>9} {'rate':>8} {'peer ms':>9} {'rate':>8}  {'of':<8} {'peer/ours':>9}  least..most  SM MHz  peer", flush=True)
        self.write()

    def write(self):
        if self.path:
            with open(self.path + ".tmp", "w") as file:
                json.dump(self.content, file, indent=1)
                file.write("\n")
            os.replace(self.path + ".tmp", self.path)

    def add(self, kind, name, result, began):
        result = {"name": name, **result, "clocks": self.clocks.since(began)}
        self.content[kind].append(result)
        for peer, of in result.get("peers", {}).items():
            ratio = of["per_ours"]
            mine = result["ours"]
            print(f"{name:<52} {mine['seconds'] * 1e3:9.3f} {mine['rate']:8.1f} {of['seconds'] * 1e3:9.3f} {of['rate']:8.1f}  "
                  f"{result['unit']:<8} {ratio['median']:9.2f}  {ratio['least']:.2f}..{ratio['most']:.2f}   "
                  f"{result['clocks'].get('sm_mhz', 0):6.0f}  {peer}", flush=True)
            if "rate_without_update" in of:
                print(f"{'  without the update':<52} {'':>9} {mine['rate_without_update']:8.1f} {'':>9} "
                      f"{of['rate_without_update']:8.1f}  {result['unit']:<8}", flush=True)
        for peer, why in result.get("failed", {}).items():
            print(f"{name:<52} {peer}: {why}", flush=True)
        self.write()

    def not_run(self, names, why):
        self.content["not_run"] += names
        for name in names:
            print(f"{name:<52} not run: {why}", flush=True)
        self.write()


def reason(error):
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]


def with_rates(result, work, unit):
    """Adds the rate of work to ours and to each peer."""
    for of in (result["ours"], *result["peers"].values()):
        of["rate"] = work / of["seconds"]
    return {**result, "unit": unit}


def time_op(ours, label, o):
    """Runs ROUNDS rounds of ours and of each peer that works; reports why the others do not."""
    timer, calls, failed = Timer(o.device), {}, {}
    for name, make in torch_ops.peers(label, o.device):
        try:
            calls[name] = make()
            calls[name]()
        except Exception as error:  # a back end may refuse the shape, which is a result
            calls.pop(name, None)
            failed[name] = reason(error)
    mine, theirs, details = [], {name: [] for name in calls}, []
    for _ in range(ROUNDS):
        details.append(ours.ask(label))
        if "seconds" not in details[-1]:
            return {"failed": {"ours": json.dumps(details[-1].get("accuracy", details[-1].get("skipped")))}}
        mine.append(details[-1]["seconds"]["median"])
        for name, call in calls.items():
            theirs[name].append(timer.spread(call, o.case_seconds)["median"])
    ours_last = details[-1]
    work, unit = (ours_last["flops"] * 1e-12, "TFLOP/s") if ours_last["bound"] == "matrix" else (ours_last["bytes"] * 1e-9, "GB/s")
    return {**with_rates(compared(mine, theirs), work, unit), "failed": failed, "ours_in_full": details}


def labels_of(o, device):
    return subprocess.run([o.bench, "--list", *device], check=True, capture_output=True, text=True).stdout.splitlines()


def time_ops(report, o, end):
    device = ["--device", o.device] + (["--small"] if o.device == "cpu" else [])
    labels = labels_of(o, device)
    patterns = [o.ops] if o.ops else torch_ops.PATTERNS
    wanted = torch_ops.ordered(labels_of(o, ["--device", "cuda"]), patterns)  # also in a dry run, to check the pattern
    if not wanted:
        raise SystemExit(f"on_gpu.py: no case of bench matches {o.ops}")
    if o.device == "cpu":
        ops = {label.split(" ")[0] for label in wanted}
        wanted = [label for label in SMALL_OPS if label in labels and label.split(" ")[0] in ops]
    with Ours([o.bench, "--serve", "--seconds", str(o.case_seconds), *device]) as ours:
        report.content["ours"] = ours.head
        for i, label in enumerate(wanted):
            if time.monotonic() > end:
                return report.not_run(wanted[i:], "no time was left")
            began = time.monotonic()
            try:
                result = time_op(ours, label, o)
            except RuntimeError as error:
                result = {"failed": {"case": reason(error)}}
            report.add("ops", label, result, began)
            if not ours.runs():
                return report.not_run(wanted[i + 1:], "the bench has exited")
            if o.device == "cuda":
                torch.cuda.empty_cache()  # for our process


def time_step(model, length, batch, micro_steps, recompute, o):
    seconds = STEP_SECONDS if o.device == "cuda" else 0.1
    command = [o.bench, "--step", "bf16", "--serve", "--device", o.device, "--model", model, "--seq", str(length), "--batch",
               str(batch), "--micro-steps", str(micro_steps), "--seconds", str(seconds)] + \
        ["--train.recompute=true"] * recompute + ["--small"] * (o.device == "cpu")
    mine, theirs, updates, details = [], [], [], []
    with Ours(command) as ours:
        training = torch_llama.Training(model, length, batch, micro_steps, recompute, o.device)
        training.seconds(0)  # compiles
        for _ in range(ROUNDS):
            details.append(ours.ask("go on"))
            mine.append(details[-1]["seconds"]["median"])
            steps, of_steps = training.seconds(seconds)
            theirs.append(spread(steps)["median"])
            updates += of_steps
    ktokens = batch * length * micro_steps * 1e-3
    peer = ("blocks compiled, " if o.device == "cuda" else "eager, ") + STEP_PEER
    result = with_rates(compared(mine, {peer: theirs}), ktokens, "ktok/s")
    for of, update in ((result["ours"], statistics.median(each["update_seconds"] for each in details)),
                       (result["peers"][peer], statistics.median(updates))):
        of["update_seconds"], of["rate_without_update"] = update, ktokens / (of["seconds"] - update)
    for of in (result["ours"], *result["peers"].values()):
        for way in ("full", "causal"):
            of["mfu_" + way] = details[-1]["operations_" + way] / of["seconds"] / details[-1]["matrix_rate"]
    return {**result, "ours_in_full": details, "peer_loss": training.loss}


def name_of(model, length, batch, micro_steps, recompute):
    return f"step {model}, {batch} x {length} tokens{f' x {micro_steps}' if micro_steps > 1 else ''}" \
           f"{', recomputed' if recompute else ''}"


def time_steps(report, o, end):
    steps = STEPS if o.device == "cuda" else SMALL_STEPS
    if o.device == "cuda" and torch.cuda.mem_get_info()[1] < 100e9:
        steps = [(model, length, max(1, batch // 2), *others) for model, length, batch, *others in STEPS]
    for i, step in enumerate(steps):
        name = name_of(*step)
        began = time.monotonic()
        if end - began < LEAST_FOR_A_STEP:
            return report.not_run([name_of(*step) for step in steps[i:]], "no time was left")
        try:
            result = time_step(*step, o)
        except (RuntimeError, torch.cuda.OutOfMemoryError) as error:  # exceeding the memory is a result
            result = {"failed": {"step": reason(error)}}
        report.add("steps", name, result, began)
        if o.device == "cuda":
            torch.cuda.empty_cache()
            torch._dynamo.reset()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="path of the bench program")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="device (default: %(default)s); cpu uses small shapes, for a quick test")
    parser.add_argument("--seconds", type=float, default=300, help="total time (default: %(default)s)")
    parser.add_argument("--ops", metavar="REGEX", help="only the ops whose labels in bench --list match, and no steps")
    parser.add_argument("--json", metavar="FILE")
    o = parser.parse_args()
    o.case_seconds = SELECTED_CASE_SECONDS if o.ops else CASE_SECONDS
    if o.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no GPU; --device cpu runs without one")
    began, report = time.monotonic(), Report(o)
    try:
        time_ops(report, o, began + (1 if o.ops else OPS_SHARE) * o.seconds)
        if not o.ops:
            time_steps(report, o, began + o.seconds)
    finally:
        report.clocks.stop()


if __name__ == "__main__":
    main()
