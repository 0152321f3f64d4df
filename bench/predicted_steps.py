#!/usr/bin/env python3
"""Compares the predicted with the measured step time of 12 settings, as a table in Markdown.

    bench/predicted_steps.py data/tiny.tok --ranks 1 2 4 --rounds 3
    bench/predicted_steps.py data/tiny.tok --ranks 2 --rounds 2 --turns 14 --seconds 0 --choices 30 --searches 10
    bench/predicted_steps.py data/tiny.tok --device cuda --ranks 1 --rounds 1 --seconds 2

Each run is planned first, on the same ranks: `train --plan --save` measures the machine and writes plan.json into the
run folder. Rounds are interleaved: each plans and runs all settings once. TOKENS is a token file of at most 2,048
different tokens, such as ./quickstart makes.

With --choices, instead whether searches rank their settings as they are, each with rates that it measures anew; with
several rounds also whether the measurements of two rounds rank them alike, which bounds what a prediction can reach.
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build" / "bin"
LLAMA = "family=llama layers={} hidden={} heads={} kv_heads={} ffn={}"
SETTINGS = {
    # name: model, options
    "gpt2, 4 x 768, fp32": ("family=gpt2 layers=4 hidden=768 heads=12", "precision.compute=fp32 seq=128"),
    "gpt2, 4 x 768, bf16": ("family=gpt2 layers=4 hidden=768 heads=12", "seq=128"),
    "gpt2, 4 x 768, fp32, T = 512": ("family=gpt2 layers=4 hidden=768 heads=12", "precision.compute=fp32 seq=512"),
    "llama, 4 x 512, fp32": (LLAMA.format(4, 512, 8, 8, 1408), "precision.compute=fp32 seq=256"),
    "llama, 4 x 512, bf16": (LLAMA.format(4, 512, 8, 8, 1408), "seq=256"),
    "llama, 4 x 512, fp32, recomputed": (LLAMA.format(4, 512, 8, 8, 1408),
                                         "precision.compute=fp32 seq=256 train.recompute=true"),
    "llama, 8 x 320, fp32": (LLAMA.format(8, 320, 5, 5, 1024), "precision.compute=fp32 seq=256"),
    "llama, 8 x 320, bf16": (LLAMA.format(8, 320, 5, 5, 1024), "seq=256"),
    "qwen3, 4 x 512, 8/2 heads, fp32": ("family=qwen3 layers=4 hidden=512 heads=8 kv_heads=2 head_dim=64 ffn=1536",
                                        "precision.compute=fp32 seq=256"),
    "llama, 6 x 512, LoRA of rank 8, fp32": (LLAMA.format(6, 512, 8, 8, 1408),
                                             "precision.compute=fp32 seq=256 lora.rank=8"),
    "llama, 6 x 512, NF4 and LoRA, bf16": (LLAMA.format(6, 512, 8, 8, 1408),
                                           "seq=256 lora.rank=8 quant.base=nf4"),
    "tiny: llama, 4 x 128, fp32": (LLAMA.format(4, 128, 4, 2, 384), "precision.compute=fp32 seq=256 batch=32"),
}

GPT2 = "family=gpt2 layers=12 hidden=768 heads=12"
LLAMA_8, LLAMA_16 = LLAMA.format(8, 2048, 16, 16, 5632), LLAMA.format(16, 2048, 16, 16, 5632)
LLAMA_4096 = LLAMA.format(4, 4096, 32, 8, 14336)
MICRO = "train.batch_size_per_device"
GPU_SETTINGS = {
    "gpt2, 12 x 768, T = 1024": (GPT2, f"seq=1024 batch=16 {MICRO}=16"),
    "gpt2, 12 x 768, T = 1024, micro-batches of 2": (GPT2, f"seq=1024 batch=16 {MICRO}=2"),
    "llama, 24 x 896, 14/2 heads": (LLAMA.format(24, 896, 14, 2, 4864), f"seq=1024 batch=16 {MICRO}=16"),
    "llama, 28 x 1536, 12/2 heads": (LLAMA.format(28, 1536, 12, 2, 8960), f"seq=4096 batch=2 {MICRO}=2"),
    "llama, 8 x 2048": (LLAMA_8, f"seq=2048 batch=8 {MICRO}=4"),
    "llama, 8 x 2048, recomputed": (LLAMA_8, f"seq=2048 batch=8 {MICRO}=4 train.recompute=true"),
    "llama, 8 x 2048, T = 8192": (LLAMA_8, f"seq=8192 batch=2 {MICRO}=1"),
    "llama, 8 x 2048, offloaded": (LLAMA_8, f"seq=2048 batch=8 {MICRO}=8 parallel.offload=true"),
    "llama, 4 x 4096, 32/8 heads": (LLAMA_4096, f"seq=4096 batch=4 {MICRO}=2"),
    "llama, 4 x 4096, 32/8 heads, fp32": (LLAMA_4096, f"seq=1024 batch=2 {MICRO}=2 precision.compute=fp32"),
    "llama, 16 x 2048, LoRA of rank 16": (LLAMA_16, f"seq=2048 batch=8 {MICRO}=4 lora.rank=16"),
    "llama, 16 x 2048, NF4 and LoRA": (LLAMA_16, f"seq=2048 batch=8 {MICRO}=4 lora.rank=16 quant.base=nf4"),
}

# The model and batch of a search.
SEARCHED = (LLAMA.format(4, 256, 4, 4, 704), "precision.compute=fp32 seq=128 batch=16")
GPU_SEARCHED = (LLAMA.format(8, 1024, 8, 8, 2816), "seq=1024 batch=16")


def search(o, ranks):
    """The model, the options of a search, and the seconds that it predicts for each of its settings, the fastest first."""
    model, options = SEARCHED if o.device == "cpu" else GPU_SEARCHED
    with tempfile.TemporaryDirectory() as name:
        command, environment = command_of(o, ranks if o.device == "cpu" else 1, model, options, pathlib.Path(name))
        command += ["--search", "--verbose", "--for", o.machines or "cpu"]
        if o.device == "cuda":
            command += ["--ranks", str(ranks)]
        found = subprocess.run(command, env=environment, capture_output=True, text=True)
        if found.returncode != 0:
            sys.exit(found.stderr)
    lines = [line.split(" ms  ") for line in found.stdout.split("the fastest first:\n")[1].splitlines()]
    return model, options, {arguments: float(milliseconds) / 1000 for milliseconds, arguments in lines}


def longest_of(searches):
    """A search does not simulate what cannot be among its ten best, so some rank fewer settings than others."""
    return max(searches, key=lambda found: len(found[2]))


def settings_of(o, searches):
    """The best setting of each search and random ones: model and options by name."""
    model, options, longest = longest_of(searches)
    bests = dict.fromkeys(next(iter(seconds)) for _, _, seconds in searches)
    drawn = [name for name in bests if name in longest]
    others = [name for name in longest if name not in drawn]
    drawn += random.Random(o.seed).sample(others, min(len(others), max(0, o.choices - len(drawn))))
    return {name: (model, " ".join([options, *(word[2:] for word in name.split() if word.startswith("--"))]))
            for name in drawn}


def kendall(pairs):
    """Of all pairs of settings, the share that the prediction orders rightly, less the share that it does not."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for i, a in enumerate(pairs) for b in pairs[:i]]
    return (sum(sign > 0 for sign in signs) - sum(sign < 0 for sign in signs)) / len(signs)


def command_of(o, ranks, model, options, folder):
    """The command of a run that goes on until it is stopped, and its environment."""
    arguments = [f"--model.{pair}" for pair in model.split()] + ["--data.vocab=2048",
                                                                         f"--model.vocab={2048 if o.device == 'cpu' else 32768}"]
    batch = 4
    for pair in options.split():
        key, value = pair.split("=")
        if key == "batch":
            batch = int(value)
        elif key == "seq":
            arguments += [f"--data.seq_len={value}", f"--model.max_positions={value}"]
        else:
            arguments.append(f"--{pair}")
    config = folder / "config.toml"
    config.write_text(f'[data]\ntrain = "{o.tokens}"\npacking = "wrapped"\n[optimizer]\nlr = 1e-5\n')
    arguments += [f"--train.total_batch_size={batch}", "--train.steps=1000000", f"--run.device={o.device}",
                  f"--run.dir={folder}/run", "--checkpoint.save_every=0", "--log.every=1000000", "--overwrite"]
    command = [str(o.build / "train"), str(config), *arguments]
    if ranks > 1:
        command = ["mpirun", "-np", str(ranks), *command]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                   "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return command, environment


def lines_of(path):
    return path.read_text().splitlines() if path.exists() else []


class Run:
    """A run that can be paused and continued; it was planned and has made its first step when it is constructed."""

    def __init__(self, o, ranks, model, options):
        self.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(self.folder.name)
        self.command, environment = command_of(o, ranks, model, options, folder)
        self.ranks, self.metrics, self.log = ranks, folder / "run" / "metrics.jsonl", folder / "log"
        self.seconds = []  # of whole steps in all turns
        self.plan = folder / "run" / "plan.json"
        with open(self.log, "wb") as log:
            subprocess.run([*self.command, "--plan", "--save"], env=environment, stdout=log, stderr=log)
            self.process = subprocess.Popen(self.command, env=environment, stdout=log, stderr=log)
        self.wait_for(1)

    def steps(self):
        return len(lines_of(self.metrics))

    def wait_for(self, steps, seconds=0):
        """Until it has made so many steps and the time is over, or it has ended."""
        end = time.monotonic() + seconds
        while self.process.poll() is None and (self.steps() < steps or time.monotonic() < end):
            time.sleep(0.05)

    def send(self, number):
        """A signal to all of its processes; mpirun first, which would otherwise notice."""
        pids = [self.process.pid]
        for pid in pids:
            for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                pids += map(int, task.read_text().split())
        for pid in pids:
            os.kill(pid, number)

    def pause(self):
        if self.process.poll() is None:
            self.send(signal.SIGSTOP)

    def turn(self, seconds):
        """Goes on for so many seconds, and for a whole step at least."""
        if self.process.poll() is not None:
            return
        self.send(signal.SIGCONT)
        first = self.steps() + 1  # the step that was interrupted does not count
        self.wait_for(first + 1, seconds)
        self.seconds += [json.loads(line)["step_seconds"] for line in lines_of(self.metrics)[first:]]

    def end(self):
        """The predicted and the mean measured seconds of a step."""
        if self.ranks == 1:
            self.process.kill()  # so that it saves nothing
        elif self.process.poll() is None:
            self.process.terminate()  # mpirun ends its ranks
            self.send(signal.SIGCONT)
        self.process.wait()
        steps, log = self.steps(), self.log.read_text()
        predicted = json.loads(self.plan.read_text())["seconds"] if self.plan.exists() else None
        self.folder.cleanup()
        if not self.seconds or not predicted:
            print(f"{' '.join(self.command)}: made {steps} steps\n{log}", file=sys.stderr, flush=True)
            return None
        return predicted, statistics.mean(self.seconds)


def measure(o, ranks, all_settings):
    """Name, predicted and measured seconds of each setting, one after the other or, with turns, of all at once."""
    if not o.turns:
        for name, (model, options) in all_settings.items():
            run = Run(o, ranks, model, options)
            run.turn(o.seconds)
            yield name, run.end()
        return
    runs = {}
    ended = {}
    try:
        for name, (model, options) in all_settings.items():
            runs[name] = Run(o, ranks, model, options)
            runs[name].pause()
        for _ in range(o.turns):
            for run in runs.values():
                run.turn(o.seconds)
                run.pause()
    finally:
        for name, run in runs.items():
            ended[name] = run.end()
    yield from ended.items()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", help="token file")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--build", type=pathlib.Path, default=BUILD, help="folder of the programs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="of a run, or of a turn, after its first step; it makes a whole step at least")
    parser.add_argument("--turns", type=int, default=0,
                        help="start all runs of a round and let each go on for --seconds so many times, in turn, so that "
                             "a machine whose speed changes slows all alike; the memory must hold them all")
    parser.add_argument("--choices", type=int,
                        help="in place of the 12, so many settings of a search (train --search), the best and random ones")
    parser.add_argument("--searches", type=int, default=1, help="that predict these settings")
    parser.add_argument("--machines", help="of the search, on GPUs: a kind such as h100-80gb, or a cluster file")
    parser.add_argument("--seed", type=int, default=1, help="of the choices")
    parser.add_argument("--json", help="file for the measurements, which is rewritten after each")
    o = parser.parse_args()
    o.tokens = os.path.abspath(o.tokens)
    if o.choices and (len(o.ranks) > 1 or (o.device == "cuda") != bool(o.machines)):
        parser.error("--choices needs one number of --ranks, and on GPUs --machines")
    if o.searches > 1 and not o.choices:
        parser.error("--searches needs --choices")
    all_settings = SETTINGS if o.device == "cpu" else GPU_SETTINGS
    searches = [search(o, o.ranks[0]) for _ in range(o.searches if o.choices else 0)]
    if searches:
        all_settings = settings_of(o, searches)
    failed = 0
    found = {}  # by ranks and setting: pairs of predicted and measured
    for _ in range(o.rounds):
        for ranks in o.ranks:
            for name, pair in measure(o, ranks, all_settings):
                if not pair:
                    failed += 1
                    continue
                if searches:
                    pair = (longest_of(searches)[2][name], pair[1])
                found.setdefault(ranks, {}).setdefault(name, []).append(pair)
                print(ranks, name, *(f"{value:.3f}" for value in pair), file=sys.stderr, flush=True)
                if o.json:
                    pathlib.Path(o.json).write_text(json.dumps(found, indent=1))
    for ranks, settings in found.items():
        signed, medians = [], {}
        print(f"\n| {ranks} rank{'s' * (ranks > 1)} | predicted, s | measured, s | error |\n|---|---|---|---|")
        for name, pairs in settings.items():
            error = statistics.median(predicted / measured for predicted, measured in pairs) - 1
            signed.append(error)
            predicted, measured = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
            medians[name] = measured
            print(f"| {name} | {predicted:.3f} | {measured:.3f} | {100 * error:+.1f} % |")
        common = statistics.median(signed)
        relative = statistics.mean(abs(error - common) for error in signed)
        print(f"\nMean error {100 * statistics.mean(map(abs, signed)):.1f} %, largest {100 * max(map(abs, signed)):.1f} %; "
              f"apart from {100 * common:+.1f} % for all, {100 * relative:.1f} %.")
        if o.choices:
            ranked = [{name: seconds[name] for name in medians if name in seconds} for _, _, seconds in searches]
            taus = [kendall([(predicted, medians[name]) for name, predicted in rank.items()]) for rank in ranked]
            print(f"Kendall's tau {' '.join(f'{tau:.2f}' for tau in taus)}.")
            # The best measurement of many is too fast by chance, so what was best in one round counts as another measured it.
            first, last = ({name: pairs[i][1] for name, pairs in settings.items()} for i in (0, -1))
            chosen = [min(rank, key=rank.get) for rank in ranked]
            ratios = [statistics.mean(there[name] / there[min(here, key=here.get)] for here, there in ((first, last), (last, first)))
                      for name in chosen]
            print(f"The predicted best takes {' '.join(f'{ratio:.3f}' for ratio in ratios)} times as long as the best.")
            if o.rounds > 1:
                ends = [(first[name], last[name]) for name in settings]
                print(f"Kendall's tau of the measurements of the first and the last round: {kendall(ends):.2f}.")
    if failed:
        sys.exit(f"{failed} runs failed; the tables do not have them")


if __name__ == "__main__":
    main()
