"""Model folders with 4-bit weights, as Hugging Face transformers and bitsandbytes write them.

quantized_folders/NAME has config.json and model.safetensors, quantized from folders/NAME (llama: from a model that is
made here, large enough for several blocks of nested scales), and expected.safetensors: two weights of block 0
under "dequantized." + name, as bitsandbytes dequantizes them to f32, and the tokens and targets of two sequences with the
logits and the summed loss that transformers computes with all weights dequantized (eager attention, f32)."""
import os
import shutil
import tempfile

import bitsandbytes as bnb
import torch
import transformers as hf
from safetensors.torch import save_file

from common import FOLDER
from folders import VOCAB, sizes

# name: settings of the quantization, dtype of the other weights
FOLDERS = {
    "llama": (dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                   bnb_4bit_compute_dtype=torch.bfloat16), torch.bfloat16),
    "mistral": (dict(bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage=torch.float32), torch.float32),
    "qwen2": (dict(bnb_4bit_quant_storage=torch.bfloat16), torch.bfloat16),
    "qwen3": (dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_quant_storage=torch.float16,
                   llm_int8_skip_modules=["lm_head", "model.layers.1.mlp"]), torch.float16),
    "gpt2": (dict(bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True), torch.float32),
}


def write_base(folder):
    """A llama of one block whose MLP has layers of 320 blocks of 64 weights."""
    torch.manual_seed(7)
    settings = dict(sizes(32), num_hidden_layers=1, intermediate_size=640)
    model = hf.LlamaForCausalLM(hf.LlamaConfig(**settings))
    for p in model.parameters():
        with torch.no_grad():
            p.add_(torch.randn_like(p) * 0.1)
    model.bfloat16().save_pretrained(folder)


def dequantize(model):
    """Replaces the quantized layers by linear layers in f32, and returns some of their weights by name."""
    out = {}
    for name, module in list(model.named_modules()):
        if isinstance(module, bnb.nn.Linear4bit):
            state = module.weight.quant_state
            state.dtype, shape = torch.float32, state.shape
            state.shape = torch.Size([shape.numel()])  # on a CPU, rows that are not whole blocks give wrong values
            values = bnb.functional.dequantize_4bit(module.weight.data, state).view(shape)
            layer = torch.nn.Linear(module.in_features, module.out_features, module.bias is not None)
            layer.weight.data = values
            if module.bias is not None:
                layer.bias.data = module.bias.data.float()
            model.set_submodule(name, layer)
            if ".0." in name and name.endswith(("k_proj", "down_proj", "c_attn", "c_fc")):
                out[f"dequantized.{name}.weight"] = values
    return out


def expected_of(folder):
    model = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", device_map="cpu").eval()
    out = dequantize(model)
    torch.nn.Module.float(model)  # transformers refuses to cast a quantized model
    text = torch.randint(0, VOCAB, (25,))
    tokens, targets = text[:-1].view(2, 12), text[1:].view(2, 12)
    with torch.no_grad():
        logits = model(input_ids=tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1), reduction="sum")
    return dict(out, tokens=tokens.int(), targets=targets.int(), logits=logits, loss=loss.view(1))


def main():
    with tempfile.TemporaryDirectory() as base:
        write_base(base)
        for name, (settings, dtype) in FOLDERS.items():
            folder = os.path.join(FOLDER, "quantized_folders", name)
            shutil.rmtree(folder, ignore_errors=True)
            source = base if name == "llama" else os.path.join(FOLDER, "folders", name)
            config = hf.BitsAndBytesConfig(load_in_4bit=True, **settings)
            model = hf.AutoModelForCausalLM.from_pretrained(source, quantization_config=config, dtype=dtype,
                                                            device_map="cpu")
            model.save_pretrained(folder)
            os.remove(os.path.join(folder, "generation_config.json"))
            torch.manual_seed(9)
            save_file(expected_of(folder), os.path.join(folder, "expected.safetensors"))


if __name__ == "__main__":
    main()
