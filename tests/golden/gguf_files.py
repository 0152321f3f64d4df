"""What llama.cpp makes of our models and weights: blocks of ggml's own quantizers, and the tensors that its names and its order of
rows make of the folders in golden/folders. Needs llama-cpp-python, whose libggml-base has the reference quantizers, and gguf."""
import ctypes
import glob
import hashlib
import json
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

from common import save

FOLDERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "folders")
# Families and whether llama.cpp rotates neighbors there.
ARCHITECTURES = {"llama": ("LLAMA", True), "llama3": ("LLAMA", True), "mistral": ("LLAMA", True), "qwen2": ("QWEN2", False),
                 "qwen3": ("QWEN3", False), "gpt2": ("GPT2", False), "gemma2": ("GEMMA2", False), "gemma3": ("GEMMA3", False),
                 "granite": ("GRANITE", True), "glm4": ("GLM4", False), "qwen3_yarn": ("QWEN3", False), "phi3": ("PHI3", False), "olmo2": ("OLMO2", False), "smollm3": ("SMOLLM3", True),
                 "mixtral": ("LLAMA", True), "granitemoe": ("GRANITE_MOE", True), "qwen3_moe_fused": ("QWEN3MOE", False), "glm4_moe": ("GLM4_MOE", False), "gpt_oss": ("GPT_OSS", False)}
# The ends of names of the tensors that have all experts of a block in a file of llama.cpp, and parts of names of ours.
EXPERTS = {"gate": ("gate_proj", "w1"), "up": ("up_proj", "w3"), "down": ("down_proj", "w2")}


def blocks():
    [library] = glob.glob(os.path.join(sys.prefix, "lib/python*/site-packages/llama_cpp/lib/libggml-base.so"))
    ggml = ctypes.CDLL(library)
    rng = np.random.default_rng(1)
    kinds = [rng.standard_normal(256), rng.standard_t(2, 256) * 0.01, rng.uniform(0, 1, 256), -rng.uniform(0, 1, 256),
             np.zeros(256), np.where(np.arange(256) % 37 == 0, 1.5, 0), rng.integers(-3, 4, 256) / 8, np.full(256, 0.3),
             rng.standard_normal(256) * 1e-12, rng.standard_normal(256) * 3000]
    x = np.ascontiguousarray(np.concatenate(kinds), np.float32)
    out = {"values": torch.from_numpy(x)}
    pointer = lambda a: a.ctypes.data_as(ctypes.c_void_p)
    for name, width in (("q8_0", 34 * 8), ("q4_0", 18 * 8), ("q4_1", 20 * 8), ("q4_K", 144), ("q6_K", 210),
                        ("mxfp4", 17 * 8)):
        packed = np.zeros(x.size // 256 * width, np.uint8)
        back = np.zeros(x.size, np.float32)
        getattr(ggml, f"quantize_row_{name}_ref")(pointer(x), pointer(packed), ctypes.c_int64(x.size))
        getattr(ggml, f"dequantize_row_{name}")(pointer(packed), pointer(back), ctypes.c_int64(x.size))
        out[name.lower()], out[name.lower() + ".values"] = torch.from_numpy(packed), torch.from_numpy(back)
    save("ggml_blocks", out)


def interleaved(rows, heads):
    """The rows of each head, of which the two halves become neighbors."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def joined_experts(loaded):
    """Tensors of all experts of a block, by llama.cpp's names; removes those from `loaded` that they are made of."""
    out = {}
    for name in [name for name in loaded if name.endswith((".sinks", "_bias"))]:  # of gpt_oss and glm4_moe
        block, values = name.split(".")[2], loaded.pop(name).float().numpy()
        if name.endswith("gate_up_proj_bias"):
            out[f"blk.{block}.ffn_gate_exps.bias"], out[f"blk.{block}.ffn_up_exps.bias"] = values[:, ::2], values[:, 1::2]
        elif name.endswith("down_proj_bias"):
            out[f"blk.{block}.ffn_down_exps.bias"] = values
        else:
            own = "attn_sinks.weight" if name.endswith(".sinks") else "exp_probs_b.bias"
            out[f"blk.{block}.{own}"] = values
    for block in sorted({name.split(".")[2] for name in loaded if name.startswith("model.layers.")}, key=int):
        prefix = f"model.layers.{block}."
        whole = {name: loaded.pop(name) for name in list(loaded) if name.startswith(prefix) and
                 (".experts." in name or "_linear." in name)}
        if not whole:
            continue
        both = [t for name, t in whole.items() if name.endswith(("gate_up_proj", "input_linear.weight"))]
        down = [t for name, t in whole.items() if name.endswith(("experts.down_proj", "output_linear.weight"))]
        for kind, theirs in EXPERTS.items():
            if both and any(name.endswith("router.weight") for name in loaded):  # gpt_oss
                tensor = {"gate": both[0][..., ::2], "up": both[0][..., 1::2], "down": down[0]}[kind].transpose(1, 2)
            elif both:
                gate, up = both[0].chunk(2, dim=1)
                tensor = {"gate": gate, "up": up, "down": down[0]}[kind]
            else:
                own = {int(name.split(".experts.")[1].split(".")[0]): t for name, t in whole.items()
                       if name.split(".")[-2] in theirs}
                tensor = torch.stack([own[e] for e in sorted(own)])
            out[f"blk.{block}.ffn_{kind}_exps.weight"] = tensor.float().numpy()
    return out


def entry(tensor):
    sha = hashlib.sha256(np.ascontiguousarray(tensor, np.float32).tobytes()).hexdigest()
    return [list(tensor.shape), sha[:16]]


def tensors(folder):
    architecture, neighbors = ARCHITECTURES[folder]
    config = json.load(open(f"{FOLDERS}/{folder}/config.json"))
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], layers)
    out = {}
    loaded = {name: tensor for path in sorted(glob.glob(f"{FOLDERS}/{folder}/model*.safetensors"))
              for name, tensor in load_file(path).items()}
    for name, tensor in joined_experts(loaded).items():
        out[name] = entry(tensor)
    for name, tensor in sorted(loaded.items()):
        if name.endswith((".attn.bias", ".attn.masked_bias", "inv_freq")):
            continue
        tensor = tensor.float().numpy()
        mapped = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert mapped, name
        if neighbors and "q_proj" in name:
            tensor = interleaved(tensor, config["num_attention_heads"])
        if neighbors and "k_proj" in name:
            tensor = interleaved(tensor, config["num_key_value_heads"])
        if architecture == "GPT2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            tensor = tensor.T
        if architecture.startswith("GEMMA") and name.endswith("norm.weight"):
            tensor = tensor + np.float32(1)
        out[mapped] = entry(tensor)
    return {"architecture": gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture]], "tensors": out}


def main():
    blocks()
    with open(os.path.join(os.path.dirname(FOLDERS), "gguf_tensors.json"), "w") as file:
        json.dump({folder: tensors(folder) for folder in ARCHITECTURES}, file, separators=(",", ":"), sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
