"""Compares random mixtures of experts with transformers, in fp32:

    python tests/golden/random_mixtures.py build/bin [COUNT [FAMILY ...]]

For each family it makes COUNT models (default 200) of random sizes, saves them as transformers does, and compares the logarithm of
the probability of every token of a text with what `evaluate logprobs` writes. Some models have one expert, some send tokens to all
experts, and most have experts without tokens. In some, two experts and their rows of the router are equal, so that tokens lie between
them, and it makes no difference which one they go to."""
import json
import random
import struct
import subprocess
import sys
import tempfile

import torch
import transformers as hf

MOST_ERROR = 1e-5  # relative to the logarithm, or absolute if that is below 1
VOCAB = 48

FAMILIES = {
    "qwen3_moe": lambda r, c: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **c["sizes"], **c["own_width"], num_experts=c["experts"], norm_topk_prob=r.random() < 0.5,
        mlp_only_layers=[0] if r.random() < 0.3 else [])),
    "qwen2_moe": lambda r, c: hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(
        **{k: v for k, v in c["sizes"].items() if k != "head_dim"}, **c["own_width"], num_experts=c["experts"],
        norm_topk_prob=r.random() < 0.5, shared_expert_intermediate_size=8 * r.randint(1, 6))),
    "mixtral": lambda r, c: hf.MixtralForCausalLM(hf.MixtralConfig(**c["sizes"], num_local_experts=c["experts"])),
    "olmoe": lambda r, c: hf.OlmoeForCausalLM(hf.OlmoeConfig(
        **{k: v for k, v in c["sizes"].items() if k != "head_dim"}, num_experts=c["experts"], norm_topk_prob=r.random() < 0.5,
        eos_token_id=None)),
    "granitemoe": lambda r, c: hf.GraniteMoeForCausalLM(hf.GraniteMoeConfig(
        **{k: v for k, v in c["sizes"].items() if k != "head_dim"}, num_local_experts=c["experts"],
        embedding_multiplier=r.choice([1.0, 3.0]), attention_multiplier=r.choice([0.1, 0.5]),
        residual_multiplier=r.choice([0.3, 1.0]), logits_scaling=r.choice([1.0, 2.0]))),
    "glm4_moe": lambda r, c: grouped(r, c),
    "gpt_oss": lambda r, c: hf.GptOssForCausalLM(hf.GptOssConfig(
        **c["sizes"], num_local_experts=c["experts"], sliding_window=r.choice([3, 8, 64]),
        swiglu_limit=r.choice([0.1, 1.0, 7.0]), attn_implementation="eager", rope_parameters=r.choice([
            {"rope_type": "default", "rope_theta": 1e4},
            {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16,
             "truncate": r.random() < 0.5}]))),
}


def grouped(r, c):
    """Experts in groups, which have at least two experts each."""
    groups = r.choice([1, 2, 4])
    experts = groups * r.randint(2, 4)
    top = r.randint(1, groups)
    sizes = dict(c["sizes"], num_experts_per_tok=r.randint(1, min(4, experts // groups * top)))
    return hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(
        **sizes, **c["own_width"], n_routed_experts=experts, n_shared_experts=r.randint(1, 2), n_group=groups, topk_group=top,
        routed_scaling_factor=r.choice([1.0, 2.5]), norm_topk_prob=r.random() < 0.7, use_qk_norm=r.random() < 0.5,
        attention_bias=r.random() < 0.5, first_k_dense_replace=r.randint(0, sizes["num_hidden_layers"] - 1)))


def draw(r):
    heads = r.choice([1, 2, 4])
    hidden = heads * r.choice([8, 16])
    ffn = 256 // hidden * r.randint(1, 3) if hidden < 256 else 8
    experts = r.choice([1, 2, 3, 5, 8, 16])
    chosen = experts if r.random() < 0.2 else r.randint(1, min(experts, 4))
    return {"experts": experts,
            "own_width": {"moe_intermediate_size": ffn},
            "sizes": dict(vocab_size=VOCAB, hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=r.randint(1, 3),
                          num_attention_heads=heads, num_key_value_heads=r.choice([h for h in (1, 2, 4) if heads % h == 0]),
                          head_dim=hidden // heads, max_position_embeddings=64, num_experts_per_tok=chosen,
                          tie_word_embeddings=r.random() < 0.3, pad_token_id=None)}


def spread(model, r):
    """Weights of the size of trained ones, biases and norms too; in some models two experts are equal."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.add_(torch.randn_like(p) * (0.5 if "gate.weight" in name or "router" in name else 0.15))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.add_(torch.randn_like(b) * 0.1)
        if r.random() < 0.4:
            for module in model.modules():
                if hasattr(module, "gate_up_proj") and module.gate_up_proj.dim() == 3 and len(module.gate_up_proj) > 1:
                    module.gate_up_proj[1] = module.gate_up_proj[0]
                    module.down_proj[1] = module.down_proj[0]
                    if hasattr(module, "down_proj_bias"):
                        module.gate_up_proj_bias[1] = module.gate_up_proj_bias[0]
                        module.down_proj_bias[1] = module.down_proj_bias[0]
            for name, p in model.named_parameters():
                if name.endswith(("mlp.gate.weight", "router.weight", "router.bias")) and len(p) > 1:
                    p[1] = p[0]


def write_tokens(path, tokens):
    """A token file of one document, without checksums."""
    text = b"{}"
    data = struct.pack(f"<{len(tokens)}H", *tokens)
    data += b"\0" * (-len(data) % 8)
    with open(path, "wb") as file:
        file.write(b"FLATTOK2" + struct.pack("<IIQQQQ", 2, VOCAB, len(tokens), 1, 0, len(text)))
        file.write(data + struct.pack("<QQ", 0, len(tokens)) + text)


def error_of(binaries, folder, model, tokens):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens])).logits[0].double()
    expected = torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    write_tokens(folder + "/text.tok", tokens)
    subprocess.run([f"{binaries}/evaluate", "logprobs", folder, folder + "/text.tok", "--out", folder + "/lines.jsonl",
                    "--device", "cpu"], check=True, capture_output=True)
    with open(folder + "/lines.jsonl") as file:
        found = torch.tensor(json.loads(file.readline())["logprobs"][1:], dtype=torch.float64)
    return ((found - expected).abs() / expected.abs().clamp(min=1)).max().item()


def main(binaries, count="200", *families):
    hf.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    worst = 0
    for family in families or FAMILIES:
        largest = 0
        for i in range(int(count)):
            r = random.Random(f"{family} {i}")
            torch.manual_seed(i)
            c = draw(r)
            model = FAMILIES[family](r, c).float().eval()
            spread(model, r)
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                error = error_of(binaries, folder, model, [r.randrange(VOCAB) for _ in range(r.randint(2, 40))])
            largest = max(largest, error)
            if error > MOST_ERROR:
                print(f"{family} {i}: {error:.2e}, {c}")
        print(f"{family}: {count} models, largest error {largest:.2e}", flush=True)
        worst = max(worst, largest)
    return 0 if worst <= MOST_ERROR else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
