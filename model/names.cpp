#include "model/names.h"

#include <cstdint>

namespace flatshard {
namespace {

const ParamNames kLlama{.embedding = "model.embed_tokens",
                        .positions = "",
                        .block = "model.layers.{i}.",
                        .norm1 = "input_layernorm",
                        .q = "self_attn.q_proj",
                        .k = "self_attn.k_proj",
                        .v = "self_attn.v_proj",
                        .qkv = "",
                        .q_norm = "self_attn.q_norm",
                        .k_norm = "self_attn.k_norm",
                        .attention_out = "self_attn.o_proj",
                        .norm2 = "post_attention_layernorm",
                        .gate = "mlp.gate_proj",
                        .up = "mlp.up_proj",
                        .down = "mlp.down_proj",
                        .final_norm = "model.norm",
                        .head = "lm_head",
                        .transposed_weights = false};

const ParamNames kGpt2{.embedding = "transformer.wte",
                       .positions = "transformer.wpe",
                       .block = "transformer.h.{i}.",
                       .norm1 = "ln_1",
                       .q = "",
                       .k = "",
                       .v = "",
                       .qkv = "attn.c_attn",
                       .q_norm = "",
                       .k_norm = "",
                       .attention_out = "attn.c_proj",
                       .norm2 = "ln_2",
                       .gate = "",
                       .up = "mlp.c_fc",
                       .down = "mlp.c_proj",
                       .final_norm = "transformer.ln_f",
                       .head = "lm_head",
                       .transposed_weights = true};

}  // namespace

const ParamNames& param_names(const std::string& family) { return family == "gpt2" ? kGpt2 : kLlama; }

std::string block_prefix(const ParamNames& names, int64_t block) {
  std::string prefix = names.block;
  return prefix.replace(prefix.find("{i}"), 3, std::to_string(block));
}

}  // namespace flatshard
