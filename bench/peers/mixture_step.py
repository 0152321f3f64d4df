#!/usr/bin/env python3
"""Times training steps of a mixture of experts on the CPU: Flatshard and transformers, interleaved on the same shape.

A round is some steps of `bench --step --model experts-N --serve`, then some of Qwen3-MoE in transformers with each of its ways to
multiply with experts: `grouped_mm` and `eager`. A step is forward, backward, clipping of the global norm to 1, and fused AdamW,
without a loss that balances experts. Ratios are computed per round, of median times.
"""
import argparse
import statistics
import sys
import time

import torch
import transformers

from interleave import Ours
from paired import write_json
from pytorch_step import at_least

WARM_UPS, BATCHES = 2, 64
WAYS = ("grouped_mm", "eager")


class Training:
    def __init__(self, way, dtype, o):
        torch.manual_seed(1)
        config = transformers.Qwen3MoeConfig(
            vocab_size=8192, hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
            num_experts=o.experts, num_experts_per_tok=4, moe_intermediate_size=256, norm_topk_prob=True,
            tie_word_embeddings=True, use_cache=False)
        config._experts_implementation = way
        self.model = transformers.Qwen3MoeForCausalLM(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
        # u^3 over the vocabulary, as in the bench, so that the loss can decrease.
        u = torch.rand(BATCHES, o.batch, o.seq, generator=torch.Generator().manual_seed(1))
        self.batches = (u ** 3 * 8191).long()
        self.bf16 = dtype == "bf16"
        self.number = 0

    def step(self):
        tokens = self.batches[self.number % BATCHES]
        self.number += 1
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - begin

    def sample(self, steps):
        while self.number < WARM_UPS:
            self.step()
        return statistics.median(self.step() for _ in range(steps))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/bin/bench", help="path of the bench program (default: %(default)s)")
    parser.add_argument("--experts", type=int, choices=[32, 64], default=32, help="experts of a block (default: %(default)s)")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--batch", type=at_least(1), default=4, help="sequences per step (default: %(default)s)")
    parser.add_argument("--seq", type=at_least(1), default=256, help="tokens per sequence (default: %(default)s)")
    parser.add_argument("--threads", type=at_least(1), default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="(default: %(default)s)")
    parser.add_argument("--steps", type=at_least(1), default=3, help="steps of each in a round (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="output file for the rounds")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    head = f"torch {torch.__version__}, transformers {transformers.__version__}, {o.threads} threads"
    print(f"{head}\n{o.experts} experts, 4 a token, {o.batch} x {o.seq} tokens, {o.dtype}, ms a step")
    command = [o.bench, "--step", o.dtype, "--serve", "--small", "--model", f"experts-{o.experts}", "--batch", str(o.batch),
               "--seq", str(o.seq), "--threads", str(o.threads), "--seconds", "0.01"]
    rounds = []
    with Ours(command) as ours:
        peers = {way: Training(way, o.dtype, o) for way in WAYS}
        for _ in range(o.rounds):
            rounds.append({"ours": ours.ask("round")["seconds"]["median"], **{way: p.sample(o.steps) for way, p in peers.items()}})
            print("  ".join(f"{name} {seconds * 1e3:.0f}" for name, seconds in rounds[-1].items()), flush=True)
    for way in WAYS:
        ratios = [r[way] / r["ours"] for r in rounds]
        print(f"{way} / ours: {statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})")
    if o.json:
        write_json(o.json, {"job": f"{o.experts} experts", "command": sys.argv[1:], "peer": head, "rounds": rounds})


if __name__ == "__main__":
    main()
