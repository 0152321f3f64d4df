"""Golden losses and gradients of a two-layer model of each family, from Hugging Face transformers (eager attention, f32).

Each file holds the parameters under their names, their gradients under "grad." + name, the tokens of two sequences, the
targets and the summed loss. Names as arguments make only these models."""
import sys

import torch
import transformers as hf

from common import save

SIZES = dict(vocab_size=40, num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=24, max_position_embeddings=32, attn_implementation="eager")
MODELS = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES)),
    "mistral": lambda: hf.MistralForCausalLM(hf.MistralConfig(**SIZES, sliding_window=5)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES)),
    "qwen3": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES, head_dim=6)),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=40, n_layer=2, n_embd=16, n_head=4, n_positions=32,
                                                     resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
                                                     attn_implementation="eager")),
    # Caps of the size of the values that they bound.
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**SIZES, head_dim=6, sliding_window=5, query_pre_attn_scalar=9,
                                                           attn_logit_softcapping=0.5, final_logit_softcapping=0.75,
                                                           pad_token_id=None)),
    # Two bases, the second block of full attention with scaled frequencies.
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(
        **SIZES, head_dim=6, sliding_window=5, query_pre_attn_scalar=9, pad_token_id=None,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
                         "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}})),
    "phi3": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(**SIZES, sliding_window=5, pad_token_id=None)),
    "olmo2": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**SIZES, pad_token_id=None)),
    "granite": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(
        **SIZES, embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5)),
    "glm4": lambda: hf.Glm4ForCausalLM(hf.Glm4Config(**SIZES, head_dim=12, pad_token_id=None)),
    # One block without experts; weights that do not add up to 1; and weights that do.
    "qwen3_moe": lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **SIZES, head_dim=6, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=32, mlp_only_layers=[0],
        norm_topk_prob=True)),
    "qwen2_moe": lambda: hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(
        **SIZES, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=40)),
    "mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(
        **dict(SIZES, intermediate_size=32), num_local_experts=4, num_experts_per_tok=2)),
    "olmoe": lambda: hf.OlmoeForCausalLM(hf.OlmoeConfig(
        **dict(SIZES, intermediate_size=32), num_experts=5, num_experts_per_tok=2, pad_token_id=None)),
    "granitemoe": lambda: hf.GraniteMoeForCausalLM(hf.GraniteMoeConfig(
        **dict(SIZES, intermediate_size=32), num_local_experts=5, num_experts_per_tok=2, embedding_multiplier=3.0,
        attention_multiplier=0.3, residual_multiplier=0.4, logits_scaling=2.5)),
    # Chosen from groups by sigmoid and a bias, which is no parameter.
    "glm4_moe": lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(
        **SIZES, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=2, n_group=3,
        topk_group=2, routed_scaling_factor=1.5, first_k_dense_replace=1, use_qk_norm=True, attention_bias=True)),
    # Sinks, biases of experts, and gates and ups that exceed their bound.
    "gpt_oss": lambda: hf.GptOssForCausalLM(hf.GptOssConfig(
        **dict(SIZES, intermediate_size=32), num_local_experts=5, num_experts_per_tok=2, head_dim=6, sliding_window=5,
        swiglu_limit=0.6, rope_parameters={"rope_type": "default", "rope_theta": 1e4})),
    "smollm3": lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(**SIZES, no_rope_layer_interval=2, pad_token_id=None)),
}


# The names of gate, up and down of an expert in files, or where files have all experts in one tensor, ours.
EXPERTS = {"qwen3_moe": ("gate_proj", "up_proj", "down_proj"), "qwen2_moe": ("gate_proj", "up_proj", "down_proj"),
           "olmoe": ("gate_proj", "up_proj", "down_proj"), "granitemoe": ("gate_proj", "up_proj", "down_proj"),
           "glm4_moe": ("gate_proj", "up_proj", "down_proj"), "mixtral": ("w1", "w3", "w2")}


def named_as_in_files(family, name, values):
    """Yields the parameters of a file that one in memory stands for, where all experts of a block are one tensor."""
    if family == "gpt_oss" and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        prefix, _, kind = name.rpartition(".")
        for e, value in enumerate(values):
            yield f"{prefix}.{e}.{kind}.weight", value.clone()
        return
    if family not in EXPERTS:
        yield name, values
        return
    gate, up, down = EXPERTS[family]
    if family == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    name = name.replace(".router.weight", ".router.layer.weight")
    prefix, _, kind = name.rpartition(".")
    for e, value in enumerate(values if kind in ("gate_up_proj", "down_proj") else ()):
        if kind == "gate_up_proj":
            width = value.shape[0] // 2
            yield f"{prefix}.{e}.{gate}.weight", value[:width].clone()
            yield f"{prefix}.{e}.{up}.weight", value[width:].clone()
        else:
            yield f"{prefix}.{e}.{down}.weight", value.clone()
    if kind not in ("gate_up_proj", "down_proj"):
        yield name, values


def router_biases(model):
    return [(name, b) for name, b in model.named_buffers() if name.endswith("e_score_correction_bias")]


def main(names=()):
    for family, make in MODELS.items():
        if names and family not in names:
            continue
        torch.manual_seed(7)
        model = make().float()
        for p in model.parameters():  # biases and norms differ from 0 and 1, so that a swap is detected
            with torch.no_grad():
                p.add_(torch.randn_like(p) * 0.1)
        for _, bias in router_biases(model):
            bias.add_(torch.randn_like(bias) * 0.1)
        tokens = torch.randint(0, 40, (2, 12))
        targets = torch.randint(0, 40, (2, 12))
        targets[0, 3] = -100
        logits = model(input_ids=tokens).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.view(-1, 40), targets.view(-1), reduction="sum")
        loss.backward()
        out = {"tokens": tokens.int(), "targets": targets.int(), "loss": loss.view(1)}
        out.update(router_biases(model))
        for in_memory, p in model.named_parameters():
            for name, values in named_as_in_files(family, in_memory, p.detach()):
                out[name] = values
            for name, values in named_as_in_files(family, in_memory, p.grad):
                out["grad." + name] = values
        save(f"model_{family}", out)


if __name__ == "__main__":
    main(sys.argv[1:])
