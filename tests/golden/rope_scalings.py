"""Frequencies and attention factors of YaRN and longrope, from Hugging Face transformers."""
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from common import save

D, SIZES = 64, dict(hidden_size=256, num_attention_heads=4, head_dim=64, max_position_embeddings=4096)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=512)
LONG = dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=512,
            short_factor=[1 + i / 20 for i in range(D // 2)], long_factor=[1 + i / 2 for i in range(D // 2)])
CASES = {
    "yarn": YARN,
    "yarn_betas": dict(YARN, beta_fast=16.0, beta_slow=2.0),
    "yarn_smooth": dict(YARN, truncate=False),
    "yarn_factor": dict(YARN, attention_factor=0.75),
    "yarn_mscale": dict(YARN, mscale=2.0, mscale_all_dim=0.5),
    "longrope": LONG,
    "longrope_factor": dict(LONG, attention_factor=1.25),
}


def main():
    out = {}
    for name, parameters in CASES.items():
        config = LlamaConfig(**SIZES, rope_parameters=dict(parameters))
        for length in (512, 513) if parameters["rope_type"] == "longrope" else (512,):
            frequencies, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, None, seq_len=length)
            suffix = "_long" if length > 512 else ""
            out[name + suffix] = frequencies
            out[name + suffix + ".attention_factor"] = torch.tensor([factor], dtype=torch.float32)
    save("rope_scalings", out)


if __name__ == "__main__":
    main()
