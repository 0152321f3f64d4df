"""Times quantized weights and moments: the ops of `bench --serve` and those of bitsandbytes on the same shapes, interleaved, each
product also beside the dense one of both. Prints medians, and their ratios over the rounds. Needs torch and bitsandbytes.

    python bench/peers/bitsandbytes_ops.py [--bench build/bin/bench] [--threads N] [--rounds N] [WORD ...]"""
import argparse
import re
import subprocess

import torch
import torch.nn.functional as F

from interleave import Ours, Timer, compared

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
SHAPE = re.compile(r"(nf4|fp4) block (\d+)( nested)?")


def peers(label, device):
    """The calls of a case by name."""
    from bitsandbytes import functional as B
    import bitsandbytes
    op, *_ = label.split()
    dtype = DTYPES[label.split()[-1]]
    sizes = [int(n) for n in re.match(r"\w+ (\d+(?: ?x ?\d+)*)", label).group(1).split("x")]

    def random(*shape):
        return (torch.rand(shape, device=device) - 0.5).to(dtype)
    if op == "adamw8bit":
        n = sizes[0]
        p, g = torch.rand(n, device=device), random(n).float()
        m, v = (torch.randint(0, 256, (n,), dtype=torch.uint8, device=device) for _ in range(2))
        absmax = [torch.rand(-(-n // 256), device=device) + 0.5 for _ in range(2)]
        maps = [B.create_dynamic_map(signed=signed).to(device) for signed in (True, False)]
        return {"bitsandbytes": lambda: torch.ops.bitsandbytes.optimizer_update_8bit_blockwise(
            "adam", g, p, m, v, 0.9, 0.999, 0.0, 0.0, 1e-8, 3, 1e-3, *maps, *absmax, 0.1, 1.0, False)}
    if op == "quantize_scales":
        absmax = random(*sizes).abs()
        return {"bitsandbytes": lambda: B.quantize_blockwise(absmax - absmax.mean(), blocksize=256)}
    kind, block, nested = SHAPE.search(label).groups()
    options = {"blocksize": int(block), "quant_type": kind}
    if op == "quantize_four_bit":
        x = random(*sizes)
        return {"bitsandbytes": lambda: B.quantize_4bit(x, **options)}
    rows, columns = sizes if op == "dequantize_four_bit" else (sizes[1:] if "w^T" in label else sizes[:0:-1])
    w = random(rows, columns)
    codes, state = B.quantize_4bit(w, **options, compress_statistics=bool(nested))
    if op == "dequantize_four_bit":
        return {"bitsandbytes": lambda: B.dequantize_4bit(codes, state)}
    a = random(sizes[0], sizes[2])
    if "w^T" in label:
        return {"bitsandbytes": lambda: bitsandbytes.matmul_4bit(a, codes.t(), state), "torch, dense": lambda: F.linear(a, w)}
    return {"bitsandbytes": lambda: a @ B.dequantize_4bit(codes, state), "torch, dense": lambda: a @ w}


def dense_label(label):
    return re.sub(r"^four_bit_product (.*?) (nf4|fp4) .* (\w+)$", r"gemm \1 dense \3", label)


def time_case(ours, label, o):
    """Our time, and those of the other calls by name, in each round."""
    timer, calls = Timer(o.device), peers(label, o.device)
    mine, theirs = [], {name: [] for name in ("ours, dense", *calls)}

    def ask(of):
        answer = ours.ask(of)
        if "seconds" not in answer:
            raise RuntimeError(f"{of}: {answer}")
        return answer["seconds"]["median"]
    is_product = label.startswith("four_bit_product")
    for _ in range(o.rounds):
        mine.append(ask(label))
        if is_product:
            theirs["ours, dense"].append(ask(dense_label(label)))
        for name, call in calls.items():
            theirs[name].append(timer.spread(call, o.seconds)["median"])
    return compared(mine, {name: seconds for name, seconds in theirs.items() if seconds})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD", help="words that the label of a case must all contain")
    parser.add_argument("--bench", default="build/bin/bench", help="path of the bench program (default: %(default)s)")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu", help="device (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved measurements (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=1, help="time of a measurement (default: %(default)s)")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    device = ["--device", o.device]
    labels = subprocess.run([o.bench, "--list", *device], check=True, capture_output=True, text=True).stdout.splitlines()
    labels = [label for label in labels if re.match(r"(de)?quantize_|four_bit_product|adamw8bit", label)
              and all(word in label for word in o.words)]
    command = [o.bench, "--serve", "--seconds", str(o.seconds), *device]
    with Ours(command + (["--threads", str(o.threads)] if o.device == "cpu" else [])) as ours:
        for label in labels:
            result = time_case(ours, label, o)
            print(f"{label:<75} {result['ours']['seconds'] * 1e3:9.3f} ms", flush=True)
            for name, peer in result["peers"].items():
                ratio = peer["per_ours"]
                print(f"    {name:<71} {peer['seconds'] * 1e3:9.3f} ms   {ratio['median']:.2f} times ours "
                      f"({ratio['least']:.2f}..{ratio['most']:.2f})", flush=True)


if __name__ == "__main__":
    main()
