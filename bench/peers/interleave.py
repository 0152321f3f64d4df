"""Interleaved measurements for on_gpu.py: Flatshard's bench as a server, PyTorch calls timed on the device, and the clocks of
the GPU."""
import json
import math
import statistics
import subprocess
import tempfile
import threading
import time

import torch

WARM_UPS, LEAST_SAMPLES, SAMPLE_SECONDS = 3, 5, 200e-6


class Ours:
    """A `bench --serve` process, which answers each line with a measurement as a line of JSON."""

    def __init__(self, command):
        self.command = command
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        self.head = self.answer()  # machine and ceilings; the process is ready

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def runs(self):
        return self.process.poll() is None

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # answer() raises the reason
        return self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise RuntimeError(f"{' '.join(self.command)}: {self.errors.read().decode().strip()[-500:]}")
        return json.loads(line)


class Timer:
    """Times calls on a device. On a GPU it uses events, after as many untimed calls, which hide the launch overhead."""

    def __init__(self, device):
        self.on_gpu = device == "cuda"

    def seconds(self, call, times):
        if not self.on_gpu:
            begin = time.perf_counter()
            for _ in range(times):
                call()
            return (time.perf_counter() - begin) / times
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(times):
            call()
        begin.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / times

    def spread(self, call, limit):
        """The median, p10 and p90 per call, from `limit` seconds of samples."""
        for _ in range(WARM_UPS):
            one = self.seconds(call, 1)
        times = max(1, math.ceil(SAMPLE_SECONDS / one))
        samples, end = [], time.monotonic() + limit
        while len(samples) < LEAST_SAMPLES or time.monotonic() < end:
            samples.append(self.seconds(call, times))
        return spread(samples)


def spread(samples):
    tenths = statistics.quantiles(samples, n=10, method="inclusive")
    return {"median": statistics.median(samples), "p10": tenths[0], "p90": tenths[-1]}


class Clocks:
    """Samples of the SM clock and the power of the GPU; none without nvidia-smi."""
    QUERY = ["nvidia-smi", "--id=0", "--query-gpu=clocks.sm,power.draw", "--format=csv,noheader,nounits", "-lms", "100"]

    def __init__(self):
        self.samples = []
        try:
            self.process = subprocess.Popen(self.QUERY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except FileNotFoundError:
            self.process = None
            return
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            try:
                self.samples.append((time.monotonic(), *map(float, line.split(","))))
            except ValueError:
                pass  # "[N/A]"

    def since(self, begin):
        """The medians since a time."""
        recent = [sample for sample in self.samples if sample[0] >= begin]
        if not recent:
            return {}
        return {"sm_mhz": statistics.median(s[1] for s in recent), "watts": statistics.median(s[2] for s in recent)}

    def stop(self):
        if self.process:
            self.process.kill()


def compared(ours, peers):
    """Medians over the rounds, and the ratio of the time of each peer to ours, computed per round."""
    result = {"ours": {"seconds": statistics.median(ours), "rounds": ours}, "peers": {}}
    for name, seconds in peers.items():
        ratios = [theirs / mine for theirs, mine in zip(seconds, ours)]
        result["peers"][name] = {"seconds": statistics.median(seconds), "rounds": seconds,
                                 "per_ours": {"median": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}}
    return result
