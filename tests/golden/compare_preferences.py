#!/usr/bin/env python3
"""Trains a model folder on preferences, labels and rollouts with Flatshard and with TRL's losses, and compares.

    compare_preferences.py FOLDER PAIRS BIN      FOLDER: a chat model, such as SmolLM2-135M-Instruct; PAIRS: JSON lines
                                                 such as configs/key_pairs prints; BIN: build/bin

Three AdamW steps of all parameters in fp32 for each loss, two pairs, four labeled answers or two rollouts a step. A line
has the largest differences of loss and gradient norm, of the first step and of all three, relative to values above 1.
TRL's side renders the conversations with transformers' chat template and tokenizer. The pairs for ORPO are texts with
prompts of one token, because TRL's loss covers the prompt too. The log-probabilities that rollouts come with are those
of the initial model, with noise.
Needs torch, transformers, accelerate and trl.
"""
import argparse
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import preferences

STEPS = preferences.STEPS
LEARNING_RATE, EPS = 1e-4, 0.1  # of AdamW, which with a small eps amplifies rounding
BOUNDS = (1e-5, 1e-4)  # of loss and gradient norm
OPTIONS = {
    "dpo": "--train.loss=dpo",
    "dpo_sft": "--train.loss=dpo --preference.sft_weight=0.5",
    "ipo": "--train.loss=ipo",
    "orpo": "--train.loss=orpo",
    "kto": "--train.loss=kto --train.total_batch_size=4 --preference.undesirable_weight=1.5",
    "grpo": "--train.loss=policy --policy.mean=answers --policy.clip_high=0.28 --policy.kl_weight=0.04",
    "gspo": "--train.loss=policy --policy.mean=answers --policy.ratio=answer --policy.clip_low=0.03 --policy.clip_high=0.04",
    "dapo": "--train.loss=policy --policy.clip_high=0.28",
}
RECORDS = {"dpo": "pairs", "dpo_sft": "pairs", "ipo": "pairs", "orpo": "texts", "kto": "labels"}  # others: rollouts


class Data:
    """Files for Flatshard and, in `ids`, the same as token ids, both by kind of records."""

    def __init__(self, folder, pairs, work):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = preferences.read_model(folder)
        self.work, self.ids = work, {}
        chats = [json.loads(line) for line in pairs.read_text().splitlines()]
        chats = [chats[i * (len(chats) // 12)] for i in range(12)]  # not all about the same
        self.add_pairs(chats[:6])
        self.add_texts(chats[:6])
        self.add_labels(chats)
        self.add_rollouts(chats[:6])
        del self.model

    def write(self, kind, records, ids):
        (self.work / f"{kind}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        self.ids[kind] = ids

    def of_chat(self, prompt, answer):
        """The token ids of the prompt and of the answer."""
        ids = functools.partial(self.tokenizer.apply_chat_template, tokenize=True, return_dict=False)
        start, whole = ids(prompt, add_generation_prompt=True), ids(prompt + answer)
        assert whole[:len(start)] == start
        return start, whole[len(start):]

    def of_text(self, prompt, answer):
        start = self.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        whole = self.tokenizer(prompt + answer, add_special_tokens=False)["input_ids"]
        assert whole[:len(start)] == start and len(start) == 1
        return start, whole[1:] + [self.tokenizer.eos_token_id]

    def add_pair_ids(self, kind, records, of):
        ids = []
        for r in records:
            (prompt, chosen), (_, rejected) = of(r["prompt"], r["chosen"]), of(r["prompt"], r["rejected"])
            ids.append(dict(prompt=prompt, chosen=chosen, rejected=rejected))
        self.write(kind, records, ids)

    def add_pairs(self, chats):
        self.add_pair_ids("pairs", chats, self.of_chat)

    def add_texts(self, chats):
        texts = [dict(prompt="It", **{key: " says:" + chat[key][0]["content"].removeprefix("It")
                                      for key in ("chosen", "rejected")}) for chat in chats]
        self.add_pair_ids("texts", texts, self.of_text)

    def add_labels(self, chats):
        records = [dict(prompt=chat["prompt"], completion=chat["chosen" if i % 3 else "rejected"], label=i % 3 > 0)
                   for i, chat in enumerate(chats)]
        ids = [dict(zip(("prompt", "completion"), self.of_chat(r["prompt"], r["completion"])), label=r["label"])
               for r in records]
        self.write("labels", records, ids)

    def add_rollouts(self, chats):
        torch.manual_seed(5)
        ids, records = [], []
        for i, chat in enumerate(chats):
            prompt, completion = self.of_chat(chat["prompt"], chat["chosen" if i % 2 else "rejected"])
            old = preferences.answer_logps(self.model, prompt, completion)
            old = (old + 0.25 * torch.randn_like(old)).clamp(max=0).tolist()
            advantage = (0.9, -1.1, -0.6, 1.3, -0.8, 0.7)[i]
            ids.append(dict(prompt=prompt, completion=completion, old_logps=old, advantage=advantage))
            records.append(dict(prompt_ids=prompt, completion_ids=completion, logprobs=old, advantage=advantage))
        self.write("rollouts", records, ids)


def ours(case, kind, folder, work, programs):
    """Loss and gradient norm of each step."""
    config = work / "config.toml"
    config.write_text(f"""[run]
dir = "{work}/run"
device = "cpu"
[model]
init_from = "{folder.resolve()}"
[data]
train = "{work}/{kind}.jsonl"
seq_len = 512
packing = "none"
shuffle = false
[train]
steps = {STEPS}
total_batch_size = 2
batch_size_per_device = 2
[optimizer]
lr = {LEARNING_RATE}
eps = {EPS}
betas = [0.9, 0.999]
grad_clip = 0
[schedule]
kind = "constant"
[precision]
compute = "fp32"
[checkpoint]
save_every = 0
""")
    run = subprocess.run([programs / "train", config, *OPTIONS[case].split(), "--overwrite"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stdout + run.stderr)
    lines = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "loss" in line][:STEPS]


def differences(steps, others):
    return [max(abs(a[i] - b[i]) / max(abs(b[i]), 1) for a, b in zip(steps, others)) for i in range(2)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("folder", "pairs", "bin"):
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--loss", choices=OPTIONS, action="append", help="only this one; may be repeated")
    given = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    good = True
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        data = Data(given.folder, given.pairs, work)
        print("| loss | loss of each step | gradient norm | first step: difference of loss | of gradient norm |"
              " three steps: of loss | of gradient norm |\n|---|---|---|---|---|---|---|")
        for case in given.loss or OPTIONS:
            kind = RECORDS.get(case, "rollouts")
            found = ours(case, kind, given.folder, work, given.bin)
            theirs = preferences.steps_of(preferences.maker(case), preferences.CASES[case], data.ids[kind], LEARNING_RATE, EPS,
                                          functools.partial(preferences.read_model, given.folder))
            theirs = [(step["loss"], step["grad_norm"]) for step in theirs]
            first, whole = differences(found[:1], theirs[:1]), differences(found, theirs)
            print(f"| {case} |", ", ".join(f"{loss:.4f}" for loss, _ in found), "|",
                  ", ".join(f"{norm:.4g}" for _, norm in found), "|", " | ".join(f"{d:.1e}" for d in first + whole), "|",
                  flush=True)
            good = good and all(d <= bound for d, bound in zip(first + whole, BOUNDS + BOUNDS))
    sys.exit(0 if good else "a difference is larger than its bound")


if __name__ == "__main__":
    main()
