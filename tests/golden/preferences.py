"""Preference losses as TRL computes them: three AdamW steps of each loss on a tiny Llama, in preferences/.

model/          the initial policy, which is also the reference
pairs.json      token ids: "pairs" for DPO and IPO, "one_token_prompts" for ORPO, whose NLL covers the prompt too; two
                pairs a step
kto.json        answers with a label, four a step
rollouts.json   answers with "old_logps" of their tokens and an advantage, two a step
golden.json     {case: {"settings": ..., "steps": [values of each step]}}

Sequences are taken in file order and get no other tokens. AdamW with lr 0.01, betas 0.9 and 0.999, eps 1e-8, no weight
decay, no clipping; all in f32. Losses and other values come from the methods of TRL's trainers, before the step's
update; "grad_norm" is over all parameters. TRL 1.16.0: python tests/golden/preferences.py"""
import copy
import json
import math
import os
import shutil
from collections import defaultdict
from types import SimpleNamespace

import torch
import transformers as hf
from accelerate import Accelerator
from trl import DPOTrainer, GRPOTrainer, KTOTrainer
from trl.experimental.orpo import ORPOTrainer
from trl.experimental.utils import DPODataCollatorWithPadding
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference
from trl.trainer.utils import add_fused_lm_head, pad

from common import FOLDER

OUT = os.path.join(FOLDER, "preferences")
VOCAB, STEPS = 96, 3
PAD = 0  # masked everywhere
ACCELERATOR = Accelerator(cpu=True)

CASES = {
    "dpo": dict(loss_type=["sigmoid"], loss_weights=[1.0], beta=0.1),
    "dpo_sft": dict(loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.5], beta=0.1),
    "ipo": dict(loss_type=["ipo"], loss_weights=[1.0], beta=0.1),
    "orpo": dict(beta=0.1),
    "kto": dict(beta=0.1, desirable_weight=1.0, undesirable_weight=1.5),
    "grpo": dict(loss_type="grpo", importance_sampling_level="token", epsilon=0.2, epsilon_high=0.28, beta=0.04,
                 use_bias_correction_kl=False),
    # TRL's default: the KL of a token is multiplied by its ratio, through which gradients flow too.
    "grpo_corrected": dict(loss_type="grpo", importance_sampling_level="token", epsilon=0.2, epsilon_high=0.28,
                           beta=0.04, use_bias_correction_kl=True),
    "gspo": dict(loss_type="grpo", importance_sampling_level="sequence", epsilon=0.03, epsilon_high=0.04, beta=0.0),
    "dapo": dict(loss_type="dapo", importance_sampling_level="token", epsilon=0.2, epsilon_high=0.28, beta=0.0),
}


def random_model():
    model = hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=VOCAB, num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=64, max_position_embeddings=64, initializer_range=0.2, tie_word_embeddings=False))
    for p in model.parameters():
        if p.ndim == 1:  # norms differ from 1
            with torch.no_grad():
                p.add_(torch.randn_like(p) * 0.1)
    return model


def read_model(folder=os.path.join(OUT, "model")):
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.get_input_embeddings().padding_idx = None  # with it, the padding token's row has no gradient
    add_fused_lm_head(model, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
    return model.train()


def tokens(low, high):
    return torch.randint(3, VOCAB, (torch.randint(low, high + 1, ()).item(),)).tolist()


def answer_logps(model, prompt, answer):
    """Of the tokens of an answer, computed from the logits of that sequence alone."""
    with torch.no_grad():
        logps = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1:-1].log_softmax(-1)
    return logps.gather(-1, torch.tensor(answer)[:, None])[:, 0]


def sequences(model):
    pairs = {"pairs": [dict(prompt=tokens(2, 8), chosen=tokens(2, 12), rejected=tokens(2, 12)) for _ in range(6)],
             "one_token_prompts": [dict(prompt=tokens(1, 1), chosen=tokens(3, 19), rejected=tokens(3, 19))
                                   for _ in range(6)]}
    labels = [True, False, False, True] + [False, True, False, False] + [True, True, False, True]
    kto = [dict(prompt=tokens(2, 8), completion=tokens(2, 12), label=label) for label in labels]
    rollouts = []
    for advantage in (0.9, -1.1, -0.6, 1.3, -0.8, 0.7):
        prompt, completion = tokens(2, 8), tokens(2, 12)
        old = answer_logps(model, prompt, completion)
        old += 0.25 * torch.randn_like(old)
        rollouts.append(dict(prompt=prompt, completion=completion, old_logps=old.tolist(), advantage=advantage))
    return pairs, kto, rollouts


def trainer(kind, model, reference, **attributes):
    """A trainer with only the attributes that its loss needs."""
    made = object.__new__(kind)
    made.__dict__.update(model=model, ref_model=reference, accelerator=ACCELERATOR, aux_loss_enabled=False,
                         _metrics={"train": defaultdict(list)}, _total_train_tokens=0, _tp_size=1,
                         precompute_ref_logps=False, args=SimpleNamespace(gradient_checkpointing_kwargs=None))
    made.__dict__.update(attributes)
    return made


def pair_values(metrics):
    names = dict(accuracy="rewards/accuracies", margin="rewards/margins", chosen_reward="rewards/chosen",
                 rejected_reward="rewards/rejected", chosen_logp="logps/chosen", rejected_logp="logps/rejected",
                 nll="nll_loss", kl="kl")
    last = {key: value[-1] if isinstance(value, list) else value for key, value in metrics.items()}
    return {name: last[key] for name, key in names.items() if key in last}


def dpo(model, reference, settings):
    of = trainer(DPOTrainer, model, reference, beta=settings["beta"], loss_types=settings["loss_type"],
                 loss_weights=settings["loss_weights"], ld_alpha=None, f_divergence_type="reverse_kl",
                 label_smoothing=0.0, use_weighting=False)
    collate = DataCollatorForPreference(pad_token_id=PAD)

    def step(pairs):
        batch = collate([dict(prompt_ids=p["prompt"], chosen_ids=p["chosen"], rejected_ids=p["rejected"])
                         for p in pairs])
        return of._compute_loss(model, batch, False), pair_values(of._metrics["train"])
    return step


def orpo(model, reference, settings):
    of = trainer(ORPOTrainer, model, None, beta=settings["beta"], is_encoder_decoder=False, padding_value=PAD)
    collate = DPODataCollatorWithPadding(pad_token_id=PAD)

    def step(pairs):
        rows = []
        for p in pairs:
            row = {}
            for key in ("chosen", "rejected"):
                ids = p["prompt"] + p[key]
                row.update({key + "_input_ids": ids, key + "_attention_mask": [1] * len(ids),
                            key + "_labels": [-100] * len(p["prompt"]) + p[key]})
            rows.append(row)
        loss, metrics = of.get_batch_loss_metrics(model, collate(rows))
        return loss, pair_values(metrics)
    return step


def kto(model, reference, settings):
    of = trainer(KTOTrainer, model, reference, loss_type="kto", calculate_KL=True, **settings)
    collate = DataCollatorForUnpairedPreference(pad_token_id=PAD)

    def step(answers):
        rotated = [answers[-1]] + answers[:-1]
        batch = collate([dict(prompt_ids=a["prompt"], completion_ids=a["completion"], KL_completion_ids=r["completion"],
                              label=a["label"]) for a, r in zip(answers, rotated)])
        return of._compute_loss(model, batch, False), pair_values(of._metrics["train"])
    return step


def policy(model, reference, settings):
    of = trainer(GRPOTrainer, model, reference, beta=settings["beta"], loss_type=settings["loss_type"],
                 importance_sampling_level=settings["importance_sampling_level"], epsilon_low=settings["epsilon"],
                 epsilon_high=settings["epsilon_high"], current_gradient_accumulation_steps=1, top_entropy_quantile=1.0,
                 off_policy_mask_threshold=None, use_vllm=False, _entropy_bonus_enabled=False,
                 args=SimpleNamespace(use_bias_correction_kl=settings.get("use_bias_correction_kl"), delta=None,
                                      steps_per_generation=1))

    def step(rollouts):
        def padded(key, side, value=None):
            return pad([torch.tensor(r[key]) if value is None else torch.full((len(r[key]),), value) for r in rollouts],
                       padding_value=PAD, padding_side=side)
        batch = dict(prompt_ids=padded("prompt", "left"), prompt_mask=padded("prompt", "left", 1),
                     completion_ids=padded("completion", "right"), completion_mask=padded("completion", "right", 1),
                     old_per_token_logps=padded("old_logps", "right"),
                     advantages=torch.tensor([r["advantage"] for r in rollouts]))
        batch["num_items_in_batch"] = batch["completion_mask"].sum()
        if settings["beta"]:
            with torch.no_grad():
                batch["ref_per_token_logps"], _, _ = of._get_per_token_logps_and_entropies(
                    reference, torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
                    torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1), batch["completion_ids"].shape[1])
        loss = of._compute_loss(model, batch)
        metrics = of._metrics["train"]
        values = {"clip_share": metrics["clip_ratio/region_mean"][-1]}
        if settings["beta"]:
            values["kl"] = metrics["kl"][-1]
        return loss, values
    return step


def maker(case):
    """What makes the step of a case."""
    return kto if case == "kto" else orpo if case == "orpo" else policy if "epsilon" in CASES[case] else dpo


def steps_of(make, settings, data, lr=0.01, eps=1e-8, read=read_model):
    """The values of each step, over whose data `data` is cut evenly."""
    model, reference = read(), read()
    step = make(model, reference, settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.999), eps=eps, weight_decay=0.0)
    each, found = len(data) // STEPS, []
    for i in range(STEPS):
        optimizer.zero_grad()
        loss, values = step(data[i * each:(i + 1) * each])
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
        optimizer.step()
        found.append(dict(loss=loss.item(), grad_norm=norm.item(), **values))
    return found


def expected_first_losses(model, pairs, answers, rollouts):
    """Of the first step, where the policy is the reference, from sequences without padding."""
    def nll(pairs):
        return -torch.cat([answer_logps(model, p["prompt"], p["chosen"]) for p in pairs]).mean().item()

    def odds(p, key):
        mean = answer_logps(model, p["prompt"], p[key]).mean().item()
        return mean - math.log1p(-math.exp(mean))

    def surrogate(settings, rollout):
        """Per token."""
        logps = answer_logps(model, rollout["prompt"], rollout["completion"])
        ratio = logps - torch.tensor(rollout["old_logps"])
        if settings["importance_sampling_level"] == "sequence":
            ratio = ratio.mean().expand_as(ratio)
        clipped = ratio.exp().clamp(1 - settings["epsilon"], 1 + settings["epsilon_high"])
        return -torch.min(ratio.exp() * rollout["advantage"], clipped * rollout["advantage"])

    def per_answer(case):
        return sum(surrogate(CASES[case], r).mean().item() for r in rollouts[:2]) / 2

    two = pairs["one_token_prompts"][:2]
    ratio = sum(math.log1p(math.exp(odds(p, "rejected") - odds(p, "chosen"))) for p in two) / 2
    return {"dpo": math.log(2), "dpo_sft": math.log(2) + 0.5 * nll(pairs["pairs"][:2]), "ipo": 25.0,
            "orpo": nll(two) + 0.1 * ratio, "kto": sum(0.5 if a["label"] else 0.75 for a in answers[:4]) / 4,
            "grpo": per_answer("grpo"), "grpo_corrected": per_answer("grpo"), "gspo": per_answer("gspo"),
            "dapo": torch.cat([surrogate(CASES["dapo"], r) for r in rollouts[:2]]).mean().item()}


def write(name, data):
    """A list with an item per line."""
    lists = data if isinstance(data, dict) else {"": data}
    text = [(f'"{key}": ' if key else "") + "[\n" + ",\n".join(map(json.dumps, items)) + "\n]"
            for key, items in lists.items()]
    with open(os.path.join(OUT, name), "w") as file:
        file.write(("{" + ",\n".join(text) + "}" if isinstance(data, dict) else text[0]) + "\n")


def main():
    hf.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    shutil.rmtree(OUT, ignore_errors=True)
    random_model().save_pretrained(os.path.join(OUT, "model"))
    os.remove(os.path.join(OUT, "model", "generation_config.json"))
    initial = read_model()
    pairs, answers, rollouts = sequences(initial)
    write("pairs.json", pairs)
    write("kto.json", answers)
    write("rollouts.json", rollouts)
    golden, expected = {}, expected_first_losses(initial, pairs, answers, rollouts)
    for case, settings in CASES.items():
        make = maker(case)
        data = {kto: answers, orpo: pairs["one_token_prompts"], policy: rollouts, dpo: pairs["pairs"]}[make]
        steps = steps_of(make, settings, data)
        golden[case] = {"settings": settings, "steps": steps}
        print(f"{case}: first loss {steps[0]['loss']:.6f}, expected {expected[case]:.6f}")
        assert abs(steps[0]["loss"] - expected[case]) < 1e-5 * max(1, abs(expected[case])), case
    with open(os.path.join(OUT, "golden.json"), "w") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
