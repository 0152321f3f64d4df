#!/usr/bin/env python3
"""Times training steps of the GPT-2 124M shape in PyTorch on the CPU, like `build/bin/bench --step` in Flatshard.

A step is forward, backward, clipping of the global norm to 1 and AdamW, on random weights and on tokens of the same
distribution. bf16 means float32 weights under torch.autocast. The result is the median after warm-up steps. As in the
bench, steps during which the threads waited for a processor are excluded if enough others remain; otherwise the line is
marked by a tilde. The columns for the floor and the ceilings, which only the bench measures, are missing.
"""
import argparse
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, WIDTH, HEADS, VOCAB, POSITIONS = 12, 768, 12, 50257, 1024
LEAST_STEPS, QUIET_SHARE, BATCHES = 5, 0.02, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):  # (B, T, C)
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B, H, T, D)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / (2 * LAYERS) ** 0.5 if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, tokens, targets):  # both (B, T)
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)  # tied
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def make_optimizer(model, fused):
    """The defaults of Flatshard: weight decay for matrices, none for norms, biases and embeddings."""
    def decays(name, p):
        return p.dim() == 2 and name.startswith("blocks.")
    named = list(model.named_parameters())
    groups = [{"params": [p for n, p in named if decays(n, p)], "weight_decay": 0.1},
              {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, fused=fused)


def waited_seconds():
    """How long the threads of this process have waited for a processor; 0 if the system does not report it."""
    nanoseconds = 0
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/schedstat") as file:
                nanoseconds += int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return nanoseconds * 1e-9


def make_batches(batch, length):
    """Tokens u^3 over the vocabulary, as in the bench, so that the loss can decrease."""
    u = torch.rand(BATCHES, batch, length + 1, generator=torch.Generator().manual_seed(1))
    return (u ** 3 * (VOCAB - 1)).long()


def measure(dtype, o):
    """The times of the measured steps, whether they were disturbed, and the last loss."""
    torch.manual_seed(1)
    model = Gpt2()
    optimizer = make_optimizer(model, fused=o.adamw == "fused")
    batches = make_batches(o.batch, o.seq)
    forward = torch.compile(model) if o.compile else model

    def step(number):
        tokens = batches[number % BATCHES]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = forward(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for number in range(o.warm_up):
        step(number)
    number, spent, every, quiet = o.warm_up, 0.0, [], []
    while spent < o.seconds or len(every) < LEAST_STEPS:
        waited, begin = waited_seconds(), time.perf_counter()
        loss = step(number)
        seconds = time.perf_counter() - begin
        every.append(seconds)
        if waited_seconds() - waited < QUIET_SHARE * seconds:
            quiet.append(seconds)
        number, spent = number + 1, spent + seconds
    disturbed = len(quiet) < LEAST_STEPS
    return every if disturbed else quiet, disturbed, loss


def line(dtype, tokens, seconds, disturbed, loss):
    """A line with the columns of `bench --step`, except for the floor and the ceilings."""
    tenths = statistics.quantiles(seconds, n=10, method="inclusive")
    median = statistics.median(seconds)
    return (f"{dtype:<6}{'~' if disturbed else '':<5}{tokens:4} tokens, {len(seconds):3} steps  {tokens / median:6.0f}"
            f"{median * 1e3:10.0f}{tenths[0] * 1e3:7.0f}..{tenths[-1] * 1e3:<6.0f}   loss {loss:.3f}")


def at_least(low):
    def parse(text):
        value = type(low)(text)
        if value < low:
            raise argparse.ArgumentTypeError(f"{text} is below {low}")
        return value
    return parse


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=at_least(1), default=4, help="sequences per step (default: %(default)s)")
    parser.add_argument("--seq", type=at_least(1), default=64, help="tokens per sequence (default: %(default)s)")
    parser.add_argument("--threads", type=at_least(1), default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "both"], default="both")
    parser.add_argument("--seconds", type=at_least(0.1), default=10.0, help="time limit for the steps of one dtype (default: %(default)s)")
    parser.add_argument("--warm-up", type=at_least(0), default=3, help="warm-up steps (default: %(default)s)")
    parser.add_argument("--adamw", choices=["fused", "foreach"], default="fused", help="AdamW implementation of torch (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="compile the model with torch.compile")
    o = parser.parse_args()
    if o.seq > POSITIONS:
        parser.error(f"--seq {o.seq} is above the model's {POSITIONS} positions")
    return o


def main():
    o = parse_options()
    torch.set_num_threads(o.threads)
    variant = f"{o.adamw} AdamW, {'torch.compile' if o.compile else 'eager'}"
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {variant}", flush=True)
    print(f"{'GPT-2 124M, whole steps':<30}tokens/s   step ms  p10..p90 ms", flush=True)
    for dtype in ["fp32", "bf16"] if o.dtype == "both" else [o.dtype]:
        print(line(dtype, o.batch * o.seq, *measure(dtype, o)), flush=True)


if __name__ == "__main__":
    main()
