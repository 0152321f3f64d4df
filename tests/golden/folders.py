"""Model folders as Hugging Face transformers writes and publishes them, with the expected results of the models.

folders/NAME has config.json and the weights in one or several files, and expected.safetensors: the tokens and targets
of two sequences, and the logits, the summed loss, and the gradients under "grad." + name that transformers computes from
the folder (eager attention, f32); for models of enough positions also the 50 tokens that greedy generation appends to
the first of the sequences. folders/llama also has a tokenizer. Names as arguments make only these folders."""
import json
import os
import shutil
import sys

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from common import FOLDER
from models import named_as_in_files, router_biases

VOCAB = 64


def sizes(hidden=32, **more):
    return dict(dict(vocab_size=VOCAB, num_hidden_layers=2, hidden_size=hidden, num_attention_heads=4,
                     num_key_value_heads=2, intermediate_size=hidden * 3 // 2, max_position_embeddings=32), **more)


def gpt2(hidden):
    return hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=VOCAB, n_layer=2, n_embd=hidden, n_head=4, n_positions=32,
                                            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))


def gpt_oss(hidden):
    return hf.GptOssForCausalLM(hf.GptOssConfig(
        **sizes(hidden, max_position_embeddings=64, intermediate_size=32, num_local_experts=5, num_experts_per_tok=2,
                head_dim=8, sliding_window=5, swiglu_limit=1.5, rope_parameters={
                    "rope_type": "yarn", "rope_theta": 150000.0, "factor": 4.0, "original_max_position_embeddings": 16,
                    "beta_fast": 4.0, "beta_slow": 0.5, "truncate": False})))


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)
LONGROPE = dict(rope_type="longrope", short_factor=[1.0, 1.5], long_factor=[2.0, 5.0])

# name: model, dtype of the weights, max_shard_size
MODELS = {
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**sizes())), "float32", "30KB"),
    "codellama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **sizes(16, rope_parameters={"rope_type": "default", "rope_theta": 1e6}))), "float16", "5GB"),
    "llama3": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **sizes(16, rope_parameters=dict(LLAMA3, rope_theta=500000.0)))), "bfloat16", "4KB"),
    "mistral": (lambda: hf.MistralForCausalLM(hf.MistralConfig(**sizes(sliding_window=5))), "float32", "5GB"),
    "qwen2": (lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**sizes(tie_word_embeddings=True))), "bfloat16", "5GB"),
    "qwen3": (lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**sizes(head_dim=6))), "float32", "5GB"),
    "gpt2": (lambda: gpt2(32), "float32", "5GB"),
    "gpt2_bare": (lambda: gpt2(16), "float16", "5GB"),
    # Caps of the size of the values that they bound; a pad token would have no gradient.
    "gemma2": (lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(
        **sizes(16, max_position_embeddings=64, head_dim=6, sliding_window=5, query_pre_attn_scalar=9,
                attn_logit_softcapping=0.5, final_logit_softcapping=0.75, pad_token_id=None))), "float32", "5GB"),
    "gemma3": (lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(
        **sizes(16, num_hidden_layers=4, max_position_embeddings=64, head_dim=6, sliding_window=5,
                query_pre_attn_scalar=9, pad_token_id=None,
                layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                                 "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}))),
               "float32", "5GB"),
    "phi3": (lambda: hf.Phi3ForCausalLM(hf.Phi3Config(
        **sizes(16, max_position_embeddings=64, pad_token_id=None))), "float32", "5GB"),
    "olmo2": (lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(
        **sizes(16, max_position_embeddings=64, pad_token_id=None))), "float32", "5GB"),
    "smollm3": (lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(
        **sizes(16, max_position_embeddings=64, no_rope_layer_interval=2, pad_token_id=None))), "float32", "5GB"),
    # Windows and rotary positions follow no period.
    "smollm3_layers": (lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(
        **sizes(16, num_hidden_layers=4, max_position_embeddings=64, no_rope_layers=[1, 0, 0, 1],
                use_sliding_window=True, sliding_window=5, pad_token_id=None,
                layer_types=["full_attention", "sliding_attention", "full_attention", "full_attention"]))),
                       "float32", "5GB"),
    "qwen3_moe": (lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **sizes(16, max_position_embeddings=64, head_dim=6, num_experts=6, num_experts_per_tok=3,
                moe_intermediate_size=32, mlp_only_layers=[0], norm_topk_prob=True))), "float32", "5GB"),
    "qwen2_moe": (lambda: hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(
        **sizes(16, max_position_embeddings=64, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32,
                shared_expert_intermediate_size=24, mlp_only_layers=[1]))), "float32", "5GB"),
    # All experts of a block in two tensors, as transformers 5 has them in memory.
    "qwen3_moe_fused": (lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **sizes(16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, head_dim=6))), "bfloat16", "5GB"),
    "mixtral": (lambda: hf.MixtralForCausalLM(hf.MixtralConfig(
        **sizes(16, max_position_embeddings=64, intermediate_size=32, num_local_experts=4,
                num_experts_per_tok=2))), "bfloat16", "20KB"),
    "olmoe": (lambda: hf.OlmoeForCausalLM(hf.OlmoeConfig(
        **sizes(16, max_position_embeddings=64, intermediate_size=32, num_experts=5, num_experts_per_tok=2,
                pad_token_id=None, eos_token_id=None))), "float32", "5GB"),
    # All experts of a block in two tensors, in every file.
    "granitemoe": (lambda: hf.GraniteMoeForCausalLM(hf.GraniteMoeConfig(
        **sizes(16, max_position_embeddings=64, intermediate_size=32, num_local_experts=5, num_experts_per_tok=2,
                embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4,
                logits_scaling=2.5))), "float32", "5GB"),
    "glm4_moe": (lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(
        **sizes(16, max_position_embeddings=64, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=16,
                n_shared_experts=1, n_group=4, topk_group=2, routed_scaling_factor=2.5, first_k_dense_replace=1,
                attention_bias=True))), "bfloat16", "5GB"),
    # Sinks, and biases of experts; the experts of the second in MXFP4, as published.
    "gpt_oss": (lambda: gpt_oss(16), "float32", "5GB"),
    "gpt_oss_mxfp4": (lambda: gpt_oss(32), "bfloat16", "5GB"),
    "granite": (lambda: hf.GraniteForCausalLM(hf.GraniteConfig(
        **sizes(16, max_position_embeddings=64, embedding_multiplier=3.0, attention_multiplier=0.3,
                residual_multiplier=0.4, logits_scaling=2.5))), "float32", "5GB"),
    "glm4": (lambda: hf.Glm4ForCausalLM(hf.Glm4Config(
        **sizes(16, max_position_embeddings=64, head_dim=12, pad_token_id=None))), "float32", "5GB"),
    "phi3_short": (lambda: hf.Phi3ForCausalLM(hf.Phi3Config(
        **sizes(16, max_position_embeddings=128, original_max_position_embeddings=64, pad_token_id=None,
                rope_parameters=dict(LONGROPE)))), "float32", "5GB"),
    # Heads rotated in part, as in Phi-4-mini.
    "phi3_long": (lambda: hf.Phi3ForCausalLM(hf.Phi3Config(
        **sizes(32, max_position_embeddings=64, original_max_position_embeddings=8, pad_token_id=None,
                partial_rotary_factor=0.5, rope_parameters=dict(LONGROPE)))), "float32", "5GB"),
    "qwen3_yarn": (lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(
        **sizes(16, max_position_embeddings=64, head_dim=6, rope_parameters={
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}))),
                   "float32", "5GB"),
    "llama_yarn": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **sizes(16, max_position_embeddings=64, head_dim=12, rope_parameters={
            "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 16,
            "beta_fast": 4.0, "beta_slow": 0.5, "mscale": 2.0, "mscale_all_dim": 0.5, "truncate": False}))),
                   "float32", "5GB"),
}
GREEDY = 50
SEEDS = {"gemma2": 45, "olmo2": 45, "llama_yarn": 45}  # whose greedy text varies


def write_as_version_4(path, rope_scaling):
    """Rewrites config.json with the keys that transformers 4 wrote for Llama."""
    with open(path) as file:
        config = json.load(file)
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    config["rope_scaling"] = rope_scaling
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.40.0"
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)


def write_as_first_published(path):
    """Rewrites GPT-2 without the prefix "transformer.", with the attention masks as buffers."""
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(32, 32).tril().view(1, 1, 32, 32).half()
    save_file(tensors, path, {"format": "pt"})


def write_fused(path):
    """Joins the experts of each block."""
    tensors = load_file(path)
    for prefix in sorted({name.split(".experts.")[0] for name in tensors if ".experts." in name}):
        def all_of(kind):
            names = sorted((n for n in tensors if n.startswith(prefix + ".experts.") and n.endswith(f".{kind}.weight")),
                           key=lambda n: int(n.split(".")[-3]))
            return torch.stack([tensors.pop(n) for n in names])
        tensors[prefix + ".experts.gate_up_proj"] = torch.cat([all_of("gate_proj"), all_of("up_proj")], 1)
        tensors[prefix + ".experts.down_proj"] = all_of("down_proj")
    save_file(tensors, path, {"format": "pt"})


def write_mxfp4(folder):
    """Replaces the experts' matrices by 4-bit values in blocks of 32 with an exponent each, as gpt_oss is published."""
    path = os.path.join(folder, "model.safetensors")
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat([values, -values])
    tensors = load_file(path)
    for name in [n for n in tensors if n.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        rows = tensors.pop(name).float().transpose(1, 2)
        blocks = rows.reshape(*rows.shape[:2], -1, 32)
        exponents = torch.floor(torch.log2(blocks.abs().amax(-1).clamp(min=1e-30))) - 2
        codes = (blocks[..., None] / 2 ** exponents[..., None, None] - values).abs().argmin(-1).to(torch.uint8)
        tensors[name + "_blocks"] = (codes[..., ::2] | codes[..., 1::2] << 4).contiguous()
        tensors[name + "_scales"] = (exponents + 127).to(torch.uint8).contiguous()
    save_file(tensors, path, {"format": "pt"})
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)


def tokenizer():
    """A tokenizer of single characters in the style of Llama."""
    characters = ["<unk>", "<s>", "</s>", "\u2581"] + [chr(c) for c in range(ord("a"), ord("z") + 1)]
    made = Tokenizer(models.BPE({c: i for i, c in enumerate(characters)}, [], unk_token="<unk>"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return hf.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>",
                                      chat_template="{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}")


def expected_of(folder):
    model = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.train()
    text = torch.randint(0, VOCAB, (25,))
    tokens, targets = text[:-1].view(2, 12), text[1:].view(2, 12)
    logits = model(input_ids=tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1), reduction="sum")
    loss.backward()
    out = {"tokens": tokens.int(), "targets": targets.int(), "logits": logits.detach(), "loss": loss.detach().view(1)}
    for in_memory, p in model.named_parameters():
        for name, gradient in named_as_in_files(model.config.model_type, in_memory, p.grad):
            out["grad." + name] = gradient.contiguous()
    if model.config.max_position_embeddings >= tokens.shape[1] + GREEDY:
        model.eval()
        made = model.generate(tokens[:1], max_new_tokens=GREEDY, min_new_tokens=GREEDY, do_sample=False, eos_token_id=None)
        out["greedy"] = made[0, tokens.shape[1]:].int()
    return out


def main(names=()):
    for name, (make, dtype, file_size) in MODELS.items():
        if names and name not in names:
            continue
        folder = os.path.join(FOLDER, "folders", name)
        shutil.rmtree(folder, ignore_errors=True)
        torch.manual_seed(SEEDS.get(name, 7))
        model = make()
        # Biases and norms differ from 0 and 1, so that a swap is detected; more, so that greedy text varies.
        noise, norm_noise = (0.4, 2.0) if model.config.max_position_embeddings > GREEDY else (0.1, 0.1)
        for p in model.parameters():
            with torch.no_grad():
                p.add_(torch.randn_like(p) * (norm_noise if p.ndim == 1 else noise))
        for _, bias in router_biases(model):
            bias.add_(torch.randn_like(bias) * 0.1)
        model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=file_size)
        if name == "llama":
            tokenizer().save_pretrained(folder)
        else:
            os.remove(os.path.join(folder, "generation_config.json"))
        if name == "codellama":
            write_as_version_4(os.path.join(folder, "config.json"), None)
        if name == "llama3":
            write_as_version_4(os.path.join(folder, "config.json"), LLAMA3)
        if name == "gpt2_bare":
            write_as_first_published(os.path.join(folder, "model.safetensors"))
        if name == "qwen3_moe_fused":
            write_fused(os.path.join(folder, "model.safetensors"))
        if name == "gpt_oss_mxfp4":
            write_mxfp4(folder)
        save_file(expected_of(folder), os.path.join(folder, "expected.safetensors"))


if __name__ == "__main__":
    main(sys.argv[1:])
