#!/usr/bin/env python3
"""Times training steps on LoRA adapters: Flatshard and Hugging Face's PEFT, interleaved step by step on the same shape.

A round is one step each of `bench --step --lora --serve` (adapters, frozen, full) and one of PEFT on the model of
transformers: forward, backward, clipping of the global norm to 1, fused AdamW. The adapters have rank 8 on all linear
layers. bf16 means base weights in bf16; --adapters selects the precision of PEFT's adapters. Ratios are computed per round,
of wall time and of processor time, which other programs disturb less; one thread does not spin while it waits.
"""
import argparse
import contextlib
import statistics
import sys
import time

import peft
import torch
import transformers

from interleave import Ours
from paired import write_json
from pytorch_step import QUIET_SHARE, at_least, waited_seconds

WARM_UPS, BATCHES, LEAST_ROUNDS = 2, 64, 5
OURS = ("adapters", "frozen", "full")
KINDS = {"seconds": "wall", "processor_seconds": "processor"}


def gpt2(**shape):
    config = transformers.GPT2Config(n_positions=1024, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, **shape)
    return transformers.GPT2LMHeadModel(config)


def qwen2(hidden, layers, heads, ffn):
    config = transformers.Qwen2Config(vocab_size=151936, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                                      num_key_value_heads=2, intermediate_size=ffn, tie_word_embeddings=True,
                                      rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    return transformers.Qwen2ForCausalLM(config)


MODELS = {
    "gpt2-124m": lambda: gpt2(n_embd=768, n_layer=12, n_head=12, vocab_size=50257),
    "qwen2.5-0.5b": lambda: qwen2(896, 24, 14, 4864),
    "tiny": lambda: gpt2(n_embd=64, n_layer=2, n_head=2, vocab_size=256),
}


class Training:
    """A run of PEFT. The adapters' masters are float32 except with `adapters` = "base"."""

    def __init__(self, dtype, o):
        torch.manual_seed(1)
        base = MODELS[o.model]().to(torch.bfloat16 if dtype == "bf16" else torch.float32)
        base.config.use_cache = False
        config = peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=o.dropout, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = peft.get_peft_model(base, config, autocast_adapter_dtype=o.adapters != "base")
        self.model.train()
        self.trained = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trained, lr=1e-4, weight_decay=0.1, fused=True)
        # u^3 over the vocabulary, as in the bench, so that the loss can decrease.
        u = torch.rand(BATCHES, o.batch, o.seq, generator=torch.Generator().manual_seed(1))
        self.batches = (u ** 3 * (base.config.vocab_size - 1)).long()
        self.autocast = dtype == "bf16" and o.adapters == "autocast"
        self.number = 0

    def step(self):
        tokens = self.batches[self.number % BATCHES]
        self.number += 1
        with torch.autocast("cpu", dtype=torch.bfloat16) if self.autocast else contextlib.nullcontext():
            loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()

    def sample(self):
        while self.number < WARM_UPS:
            self.step()
        waited, used, begin = waited_seconds(), time.process_time(), time.perf_counter()
        loss = self.step()
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "processor_seconds": time.process_time() - used, "quiet": waited_seconds() - waited < QUIET_SHARE * seconds, "loss": loss}


def measure(dtype, o):
    """The rounds, and what the bench says about the machine."""
    command = [o.bench, "--step", dtype, "--lora", "--serve", "--small", "--model", o.model, "--batch", str(o.batch),
               "--seq", str(o.seq), "--threads", str(o.threads), "--lora-dropout", str(o.dropout)]
    rounds = []
    with Ours(command) as ours:
        training = Training(dtype, o)
        for _ in range(o.rounds):
            rounds.append({**ours.ask("round"), "peft": training.sample()})
    return rounds, sum(p.numel() for p in training.trained)


def spread_of(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def summary(dtype, rounds, trained):
    """Medians over the rounds without disturbed steps, if enough remain."""
    quiet = [r for r in rounds if all(step["quiet"] for step in r.values())]
    disturbed = len(quiet) < LEAST_ROUNDS
    counted = rounds if disturbed else quiet

    def of(kind):
        def ratio(name, to):
            return spread_of([r[name][kind] / r[to][kind] for r in counted])
        return {"median": {name: statistics.median(r[name][kind] for r in counted) for name in (*OURS, "peft")},
                "adapters_per_frozen": ratio("adapters", "frozen"), "adapters_per_full": ratio("adapters", "full"),
                "peft_per_adapters": ratio("peft", "adapters")}
    return {"dtype": dtype, "trained_parameters": trained, "rounds_counted": len(counted), "disturbed": disturbed,
            **{kind: of(kind) for kind in KINDS}}


def lines(s):
    def text(ratio):
        return f"{ratio['median']:.2f} ({ratio['least']:.2f}..{ratio['most']:.2f})"
    return "\n".join(
        f"{s['dtype']:<5}{'~' if s['disturbed'] else ' '}{KINDS[kind]:<10}" +
        "".join(f"{s[kind]['median'][name] * 1e3:10.0f}" for name in (*OURS, "peft")) +
        f"   {text(s[kind]['adapters_per_frozen']):<20}{text(s[kind]['adapters_per_full']):<20}"
        f"{text(s[kind]['peft_per_adapters']):<20}{s['rounds_counted']:3} rounds" for kind in KINDS)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/bin/bench", help="path of the bench program (default: %(default)s)")
    parser.add_argument("--model", choices=MODELS, default="gpt2-124m", help="model shape (default: %(default)s)")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "both"], default="both")
    parser.add_argument("--batch", type=at_least(1), default=4, help="sequences per step (default: %(default)s)")
    parser.add_argument("--seq", type=at_least(1), default=64, help="tokens per sequence (default: %(default)s)")
    parser.add_argument("--threads", type=at_least(1), default=2, help="CPU threads (default: %(default)s)")
    parser.add_argument("--rounds", type=at_least(1), default=15, help="interleaved steps (default: %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.0, help="dropout on the input of the adapters (default: %(default)s)")
    parser.add_argument("--adapters", choices=["fp32", "autocast", "base"], default="fp32",
                        help="PEFT's adapters with bf16: float32 (PEFT's default), float32 under torch.autocast, or in the dtype "
                        "of the base (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="output file for the steps in full precision")
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    head = (f"peft {peft.__version__}, torch {torch.__version__}, transformers {transformers.__version__}, {o.threads} threads, "
            f"adapters of PEFT with bf16: {o.adapters}")
    print(f"{head}\n{o.model}, {o.batch} x {o.seq} tokens, dropout {o.dropout:g}, step ms\n"
          f"{'':<16}{'adapters':>10}{'frozen':>10}{'full':>10}{'PEFT':>10}   {'adapters/frozen':<20}{'adapters/full':<20}PEFT/adapters")
    content = {"job": f"{o.model}, steps on adapters of rank 8 on all linear layers", "command": sys.argv[1:], "peer": head, "medians": [], "rounds": {}}
    for dtype in ["fp32", "bf16"] if o.dtype == "both" else [o.dtype]:
        rounds, trained = measure(dtype, o)
        content["medians"].append(summary(dtype, rounds, trained))
        content["rounds"][dtype] = rounds
        print(lines(content["medians"][-1]), flush=True)
    if o.json:
        write_json(o.json, content)


if __name__ == "__main__":
    main()
