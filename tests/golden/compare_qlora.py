#!/usr/bin/env python3
"""Trains adapters on 4-bit weights with Flatshard and with transformers, PEFT and bitsandbytes on the CPU, and compares.

    compare_qlora.py TRAIN [FOLDER]      TRAIN: build/bin/train; FOLDER: a model folder instead of two tiny models

Both start from the same adapter, with a B that is not zero, and train on the same tokens without dropout. A line has three
relative differences: of the losses, the largest of all steps; of the adapters' gradients in the first step; and of what training
has added to the adapters (the last two Euclidean, all tensors together). Flatshard quantizes the weights itself in plain NF4.
Otherwise single codes may differ: with double quantization those of scales, and in FP4 those of values at a bound, where the
CPU of bitsandbytes decides unlike its GPU (1 in 10,000 weights of SmolLM2-135M). There Flatshard starts from the folder with
4-bit weights that transformers has written. Products in fp32 are compared directly. Products in bf16 round at other places on the two sides:
there both are compared with transformers in fp32, and Flatshard may not be further from it than 1.5 times as far.
Needs torch, transformers, peft, bitsandbytes, accelerate and safetensors.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import peft
import safetensors.torch
import torch
import transformers

FORMATS = [("nf4", False, 64), ("nf4", True, 64), ("fp4", False, 64), ("fp4", True, 64)]
# Bounds of the three differences for fp32, and for bf16 as a factor.
BOUNDS = (2e-5, 2e-5, 1e-3)
BF16_FACTOR = 1.5
LEARNING_RATE, BATCH = 1e-3, 2


def quantizes_itself(form):
    kind, double, _ = form
    return kind == "nf4" and not double


def tiny(kind, folder):
    # bitsandbytes 0.50 dequantizes on the CPU as if no block went over the end of a row: rows are whole blocks.
    sizes = dict(vocab_size=311, hidden_size=128, intermediate_size=192, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=False)
    torch.manual_seed(3)
    config = {"llama": transformers.LlamaConfig, "qwen2": transformers.Qwen2Config}[kind](**sizes)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.08) if parameter.dim() > 1 else None
    model.save_pretrained(folder)


def write_tokens(path, tokens, vocab):
    data = tokens.numpy().astype("<u4").tobytes()
    header = b"FLATTOK2" + struct.pack("<IIQQQQ", 4, vocab, len(tokens), 1, 0, 0)
    path.write_bytes(header + data + b"\0" * (-len(data) % 8) + struct.pack("<QQ", 0, len(tokens)))


class Reference:
    def __init__(self, folder, form, dtype, four_bit):
        kind, double, _ = form
        quantization = transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=double,
                                                       bnb_4bit_compute_dtype=dtype)
        base = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantization, dtype=dtype)
        base.save_pretrained(four_bit)
        torch.manual_seed(5)
        config = peft.LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
        self.model = peft.get_peft_model(base, config)
        for name, parameter in self.model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.02)
        self.model.train()  # otherwise bitsandbytes may repack the weights and multiply in another way
        self.trained = {name.replace(".default", ""): p for name, p in self.model.named_parameters() if p.requires_grad}

    def train(self, tokens, steps, length):
        optimizer = torch.optim.AdamW(self.trained.values(), lr=LEARNING_RATE, weight_decay=0)
        losses, gradients = [], {}
        for step in range(steps):
            begin = step * BATCH * length
            x = tokens[begin:begin + BATCH * length].view(BATCH, length)
            y = tokens[begin + 1:begin + 1 + BATCH * length]
            logits = self.model(x).logits.float().view(-1, self.model.config.vocab_size)
            loss = torch.nn.functional.cross_entropy(logits, y)
            loss.backward()
            if step == 0:
                gradients = {name: p.grad.float().clone() for name, p in self.trained.items()}
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses, gradients, {name: p.detach().float() for name, p in self.trained.items()}


def ours(program, work, folder, adapter, tokens_file, form, compute, steps, length):
    kind, double, block = form
    run = work / "run"
    command = [program, str(work / "run.toml"), f"--run.dir={run}", "--run.device=cpu", f"--model.init_from={folder}",
               f"--model.adapter={adapter}", "--lora.dropout=0", f"--data.train={tokens_file}", f"--data.seq_len={length}", "--data.shuffle=false",
               f"--train.steps={steps}", f"--train.total_batch_size={BATCH}", f"--train.batch_size_per_device={BATCH}",
               f"--optimizer.lr={LEARNING_RATE}", "--optimizer.grad_clip=0", "--schedule.kind=constant",
               f"--precision.compute={compute}", f"--checkpoint.save_every={steps}", "--checkpoint.async=false"]
    if quantizes_itself(form):
        command += [f"--quant.base={kind}", f"--quant.block={block}"]
    (work / "run.toml").write_text("")
    subprocess.run(["rm", "-rf", str(run)], check=True)
    # One step with a checkpoint, whose first moments are a tenth of the gradients; then all of them.
    subprocess.run(command + ["--train.steps=1", "--checkpoint.save_every=1"], check=True, stdout=subprocess.DEVNULL)
    gradients = {name: 10 * t for name, t in safetensors.torch.load_file(run / "step-1" / "exp_avg.safetensors").items()}
    subprocess.run(["rm", "-rf", str(run)], check=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    return losses, gradients, safetensors.torch.load_file(run / "adapter" / "adapter_model.safetensors")


def distance(a, b):
    square = sum(((a[name].double() - b[name].double()) ** 2).sum() for name in b)
    return float((square / sum((t.double() ** 2).sum() for t in b.values())).sqrt())


def differences(found, expected, start):
    losses = max(abs(a - b) / b for a, b in zip(found[0], expected[0], strict=True))
    updates = [{name: side[2][name] - start[name] for name in start} for side in (found, expected)]
    return losses, distance(found[1], expected[1]), distance(*updates)


def compare(label, folder, form, work, o):
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    tokens = (torch.rand(o.steps * BATCH * o.seq + 1, generator=torch.Generator().manual_seed(1)) ** 3 * (vocab - 1)).long()
    write_tokens(work / "tokens.tok", tokens, vocab)
    theirs, mine = {}, {}
    for compute, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        reference = Reference(folder, form, dtype, work / "four_bit")
        reference.model.save_pretrained(work / "adapter")
        start = {name: p.detach().float().clone() for name, p in reference.trained.items()}
        theirs[compute] = reference.train(tokens, o.steps, o.seq)
        mine[compute] = ours(o.train, work, folder if quantizes_itself(form) else work / "four_bit", work / "adapter", work / "tokens.tok", form, compute, o.steps, o.seq)
    exact, rounded, reference = (differences(side, theirs["fp32"], start) for side in (mine["fp32"], mine["bf16"], theirs["bf16"]))

    def line(name, values, good):
        print(f"{label:12} {form[0]}{' double' if form[1] else '':8} {name:20}" + "".join(f"{v:11.1e}" for v in values), good, flush=True)

    good = all(a <= b for a, b in zip(exact, BOUNDS))
    as_good = all(a <= BF16_FACTOR * b for a, b in zip(rounded, reference))
    line("fp32", exact, "" if good else "TOO FAR")
    line("bf16", rounded, "" if as_good else "TOO FAR")
    line("transformers, bf16", reference, "")
    return good and as_good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seq", type=int, default=48)
    o = parser.parse_args()
    print("model        format     products                losses  gradients    updates", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        models = {"given": pathlib.Path(o.folder).resolve()} if o.folder else {}
        for kind in () if o.folder else ("llama", "qwen2"):
            tiny(kind, work / kind)
            models["tiny " + kind] = work / kind
        good = [compare(label, folder, form, work, o) for label, folder in models.items() for form in FORMATS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
