"""Adapter folders as Hugging Face PEFT writes them, on the bases in folders/, with what PEFT computes from them.

adapters/NAME has adapter_config.json and adapter_model.safetensors, and
  expected.safetensors   tokens, targets, logits, the summed loss, and the gradients under "grad." + name, with every
                         trained value random. Merging the adapter into the base gives the same logits: main() checks it.
  train.safetensors      five steps from PEFT's initial values, where b is zero: "start." values, "tokens" and "targets"
                         (step, sequence, token), "losses" (means over tokens) and "norms" of each step, "grad." of the
                         first step before clipping, "end." values. AdamW, lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight
                         decay 0.01 but none for embeddings, gradients clipped to norm 1. All in f32 without dropout.
Names are those of adapter_model.safetensors. b at the start and the first gradient of a are zero and left out.

adapters/targets.json has the layers that PEFT adapts for many settings: {path: [rank, scale]}, or null where it finds none."""
import contextlib
import json
import os
import shutil
import warnings

import peft
import torch
import transformers as hf
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file, save_file

from common import FOLDER

STEPS = 5
ALL_PROJECTIONS = r".*(self_attn|mlp).*(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj).*$"

# name: base, vocabulary, settings
ADAPTERS = {
    "llama": ("llama", 64, dict(r=2, lora_alpha=4, target_modules="all-linear", lora_dropout=0.1,
                                rank_pattern={"q_proj": 3, r"layers\.1\.mlp\.down_proj": 1},
                                alpha_pattern={"v_proj": 3, "layers.0.mlp.(gate|up)_proj": 5})),
    "mistral": ("mistral", 64, dict(r=2, lora_alpha=2, target_modules=ALL_PROJECTIONS, use_rslora=True,
                                    init_lora_weights="gaussian")),
    "qwen2": ("qwen2", 64, dict(r=8, lora_alpha=16, layers_to_transform=[1])),
    "qwen3": ("qwen3", 64, dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "up_proj", "w1"],
                                exclude_modules=r".*\.0\.mlp.*", modules_to_save=["lm_head", "embed_tokens"])),
    "gpt2": ("gpt2", 64, dict(r=2, lora_alpha=4, target_modules=["c_attn", "c_proj", "c_fc"],
                              rank_pattern={"attn.c_proj": 1})),
    "llama_head": ("llama", 64, dict(r=3, lora_alpha=5, target_modules=["v_proj", "lm_head"])),
    "llama_resized": ("llama", 70, dict(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"])),
    "qwen2_resized": ("qwen2", 61, dict(r=2, lora_alpha=4, target_modules=["o_proj"])),
    # All experts of a block in one tensor: both parameters, one, and the modules that they were in transformers 4.
    "olmoe_experts": ("olmoe", 64, dict(r=3, lora_alpha=6, target_modules=["q_proj"], alpha_pattern={"down_proj": 4},
                                        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "olmoe_down": ("olmoe", 64, dict(r=2, lora_alpha=6, target_parameters=["mlp.experts.down_proj"])),
    "gpt_oss_experts": ("gpt_oss", 64, dict(r=3, lora_alpha=6, target_modules=["q_proj"], rank_pattern={"down_proj": 2},
                                            target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])),
    "gpt_oss_up": ("gpt_oss", 64, dict(r=2, lora_alpha=6, target_modules=["v_proj"],
                                       target_parameters=["1.mlp.experts.gate_up_proj"])),
    "granitemoe_experts": ("granitemoe", 64, dict(r=2, lora_alpha=5, target_modules=["o_proj"],
                                                  target_parameters=["experts.gate_up_proj", "experts.down_proj"])),
    "mixtral_modules": ("mixtral", 64, dict(r=2, lora_alpha=3, target_modules=["w1", "w2", "w3", "v_proj"])),
}


@contextlib.contextmanager
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def adapted(base, vocab, settings):
    folder = os.path.join(FOLDER, "folders", base)
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if vocab != model.config.vocab_size:
        model.resize_token_embeddings(vocab, mean_resizing=True)
    return peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings))


def trained(model):
    """The trained parameters by their names in an adapter file."""
    return {name.replace(".modules_to_save.default", "").replace(".default", ""): p
            for name, p in model.named_parameters() if p.requires_grad}


def batches(count, vocab):
    text = torch.randint(0, vocab, (count, 2, 13))
    return text[:, :, :-1], text[:, :, 1:]


def loss_of(model, tokens, targets, reduction):
    logits = model(input_ids=tokens).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction=reduction), logits


def random_adapter(name, base, vocab, settings):
    folder = os.path.join(FOLDER, "adapters", name)
    torch.manual_seed(11)
    model = adapted(base, vocab, settings).eval()
    for p in trained(model).values():
        with torch.no_grad():
            p.add_(torch.randn_like(p) * 0.1)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    path = os.path.join(folder, "adapter_config.json")
    with open(path) as file:
        config = json.load(file)
    config["base_model_name_or_path"] = "tests/golden/folders/" + base
    for key in ("target_modules", "modules_to_save", "target_parameters"):  # sets, in any order
        if isinstance(config.get(key), list):
            config[key].sort()
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
    tokens, logits = write_expected(model, folder, vocab)
    merged = model.merge_and_unload()
    with torch.no_grad():
        assert (merged(input_ids=tokens).logits - logits).abs().max() < 1e-5 * logits.abs().max(), name


def write_expected(model, folder, vocab):
    (tokens,), (targets,) = batches(1, vocab)
    loss, logits = loss_of(model, tokens, targets, "sum")
    loss.backward()
    out = {"tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach(), "loss": loss.detach().view(1)}
    for key, p in trained(model).items():
        out["grad." + key] = p.grad
    save_file({key: t.contiguous() for key, t in out.items()}, os.path.join(folder, "expected.safetensors"))
    return tokens, logits


# An adapter for each layer of each expert, as PEFT wrote them for transformers 4: base, names of the layers, settings.
SINGLE_EXPERTS = {
    "olmoe_single": ("olmoe", "mlp", ("gate_proj", "up_proj", "down_proj"), dict(r=2, lora_alpha=6)),
    "mixtral_single": ("mixtral", "block_sparse_moe", ("w1", "w3", "w2"), dict(r=3, lora_alpha=4, use_rslora=False)),
}


def single_experts(name, base, mlp, layers, settings):
    folder = os.path.join(FOLDER, "adapters", name)
    os.makedirs(folder, exist_ok=True)
    torch.manual_seed(13)
    rank, tensors = settings["r"], {}
    sizes = hf.AutoConfig.from_pretrained(os.path.join(FOLDER, "folders", base))
    count = getattr(sizes, "num_local_experts", None) or sizes.num_experts
    for block in range(sizes.num_hidden_layers):
        for expert in range(count):
            for layer in layers:
                inner, outer = sizes.hidden_size, sizes.intermediate_size
                if layer == layers[2]:
                    inner, outer = outer, inner
                path = f"base_model.model.model.layers.{block}.{mlp}.experts.{expert}.{layer}"
                tensors[path + ".lora_A.weight"] = torch.randn(rank, inner) * 0.1
                tensors[path + ".lora_B.weight"] = torch.randn(outer, rank) * 0.1
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"))
    with open(os.path.join(folder, "adapter_config.json"), "w") as file:
        json.dump(dict(settings, peft_type="LORA", task_type="CAUSAL_LM", target_modules=list(layers), bias="none",
                       base_model_name_or_path="tests/golden/folders/" + base), file, indent=2, sort_keys=True)
    model = hf.AutoModelForCausalLM.from_pretrained(os.path.join(FOLDER, "folders", base), dtype=torch.float32,
                                                    attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, folder, is_trainable=True).eval()
    write_expected(model, folder, sizes.vocab_size)


def training(name, base, vocab, settings):
    torch.manual_seed(12)
    model = adapted(base, vocab, dict(settings, lora_dropout=0.0)).train()
    params = trained(model)
    out = {"start." + key: p.detach().clone() for key, p in params.items() if ".lora_B." not in key}
    optimizer = torch.optim.AdamW(
        [{"params": [p for key, p in params.items() if ("embed" in key) == embeds], "weight_decay": decay}
         for embeds, decay in ((False, 0.01), (True, 0.0))], lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    tokens, targets = batches(STEPS, vocab)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, _ = loss_of(model, tokens[step], targets[step], "mean")
        loss.backward()
        if step == 0:
            out.update({"grad." + key: p.grad.clone() for key, p in params.items() if ".lora_A." not in key})
        norms.append(torch.nn.utils.clip_grad_norm_(params.values(), 1.0))
        optimizer.step()
        losses.append(loss.detach())
    out.update({"end." + key: p.detach() for key, p in params.items()})
    out.update(tokens=tokens.int(), targets=targets.int(), losses=torch.stack(losses), norms=torch.stack(norms))
    save_file({key: t.contiguous() for key, t in out.items()},
              os.path.join(FOLDER, "adapters", name, "train.safetensors"))


def cases(block, all_names, first, mlp):
    """Settings for models whose blocks are block.0 to block.2."""
    return [
        dict(target_modules="all-linear"),
        dict(target_modules="ALL-Linear", exclude_modules=[first]),
        dict(target_modules="all-linear", exclude_modules=rf".*\.1\..*", modules_to_save=["lm_head"]),
        dict(target_modules="all-linear", modules_to_save=["mlp"]),
        dict(),
        dict(layers_to_transform=1),
        dict(target_modules=all_names),
        dict(target_modules=[first, "w1", "w2", "w3"]),
        dict(target_modules=[first, "proj", "attn"], layers_to_transform=[0, 2]),
        dict(target_modules=[first], layers_to_transform=[0, 2], layers_pattern=block.split(".")[-1]),
        dict(target_modules=[f"{block}.0.{mlp}", first], layers_to_transform=[2]),
        dict(target_modules=[f"{block}.1.{mlp}", f"2.{mlp}"]),
        dict(target_modules=["w1", "w2"]),
        dict(target_modules=rf".*\.[02]\..*({first}|{mlp.split('.')[-1]})"),
        dict(target_modules=rf"{first}|{mlp.split('.')[-1]}"),
        dict(target_modules=rf"{block}\.\d+\.{mlp}", exclude_modules=["w1"]),
        dict(target_modules="all-linear", r=4, lora_alpha=6, rank_pattern={first: 16, rf"{block}.1.*": 2},
             alpha_pattern={mlp: 1.5, "2." + mlp: 9}),
        dict(target_modules=all_names, r=2, use_rslora=True, rank_pattern={"^" + block + ".0." + mlp: 3},
             alpha_pattern={r"[01]\..*": 10}),
    ]


LLAMA = ("model.layers", ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], "q_proj",
         "mlp.up_proj")
GPT2 = ("transformer.h", ["c_attn", "c_proj", "c_fc"], "c_attn", "mlp.c_fc")


def layers_of(family, settings):
    settings = {key: dict(sorted(value.items())) if isinstance(value, dict) else value  # as PEFT reads it from its files
                for key, value in settings.items()}
    sizes = dict(vocab_size=40, num_hidden_layers=3, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=24)
    if family == "gpt2":
        sizes = dict(vocab_size=40, n_layer=3, n_embd=16, n_head=4)
    model = hf.AutoModelForCausalLM.from_config(hf.AutoConfig.for_model(family, **sizes))
    try:
        model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    except ValueError:
        return None
    return {path: [layer.r["default"], layer.scaling["default"]] for path, layer in
            model.base_model.model.named_modules() if isinstance(layer, LoraLayer)}


def targets():
    found = []
    for family in ("llama", "mistral", "qwen2", "qwen3", "gpt2"):
        for settings in cases(*(GPT2 if family == "gpt2" else LLAMA)):
            found.append({"family": family, "settings": dict(settings, peft_type="LORA"),
                          "layers": layers_of(family, settings)})
    with open(os.path.join(FOLDER, "adapters", "targets.json"), "w") as file:
        file.write("[" + ",\n ".join(json.dumps(case) for case in found) + "]\n")


def main():
    shutil.rmtree(os.path.join(FOLDER, "adapters"), ignore_errors=True)
    with quiet():
        for name, of in ADAPTERS.items():
            random_adapter(name, *of)
            if not name.endswith(("_resized", "_down", "_modules", "_up")):
                training(name, *of)
        for name, of in SINGLE_EXPERTS.items():
            single_experts(name, *of)
        targets()


if __name__ == "__main__":
    main()
