#include "model/names.h"

#include <cstdint>
#include <map>

namespace flatshard {
namespace {

const std::string kExperts = ".experts";  // the module of all experts of a block

const ParamNames kLlama{.embedding = "model.embed_tokens",
                        .positions = "",
                        .block = "model.layers.{i}.",
                        .attention_norm = "input_layernorm",
                        .attention_out_norm = "",
                        .mlp_norm = "post_attention_layernorm",
                        .mlp_out_norm = "",
                        .q = "self_attn.q_proj",
                        .k = "self_attn.k_proj",
                        .v = "self_attn.v_proj",
                        .qkv = "",
                        .q_norm = "self_attn.q_norm",
                        .k_norm = "self_attn.k_norm",
                        .attention_out = "self_attn.o_proj",
                        .gate = "mlp.gate_proj",
                        .up = "mlp.up_proj",
                        .gate_up = "",
                        .down = "mlp.down_proj",
                        .final_norm = "model.norm",
                        .head = "lm_head"};

const ParamNames kGpt2{.embedding = "transformer.wte",
                       .positions = "transformer.wpe",
                       .block = "transformer.h.{i}.",
                       .attention_norm = "ln_1",
                       .attention_out_norm = "",
                       .mlp_norm = "ln_2",
                       .mlp_out_norm = "",
                       .q = "",
                       .k = "",
                       .v = "",
                       .qkv = "attn.c_attn",
                       .q_norm = "",
                       .k_norm = "",
                       .attention_out = "attn.c_proj",
                       .gate = "",
                       .up = "mlp.c_fc",
                       .gate_up = "",
                       .down = "mlp.c_proj",
                       .final_norm = "transformer.ln_f",
                       .head = "lm_head",
                       .transposed_weights = true};

// The names of Gemma 2 and 3.
ParamNames gemma() {
  ParamNames n = kLlama;
  n.attention_out_norm = "post_attention_layernorm";
  n.mlp_norm = "pre_feedforward_layernorm";
  n.mlp_out_norm = "post_feedforward_layernorm";
  return n;
}

ParamNames phi3() {
  ParamNames n = kLlama;
  n.qkv = "self_attn.qkv_proj";
  n.gate_up = "mlp.gate_up_proj";
  n.q = n.k = n.v = n.gate = n.up = "";
  return n;
}

ParamNames glm4() {
  ParamNames n = kLlama;
  n.attention_out_norm = "post_self_attn_layernorm";
  n.mlp_out_norm = "post_mlp_layernorm";
  n.gate_up = "mlp.gate_up_proj";
  n.gate = n.up = "";
  return n;
}

ParamNames olmo2() {
  ParamNames n = kLlama;
  n.attention_norm = n.mlp_norm = "";
  n.attention_out_norm = "post_attention_layernorm";
  n.mlp_out_norm = "post_feedforward_layernorm";
  return n;
}

// Llama with a mixture of experts, whose router and experts are in the module `mlp`.
ParamNames with_experts(const std::string& mlp, const char* gate, const char* up, const char* down) {
  ParamNames n = kLlama;
  n.router = mlp + ".gate";
  n.expert_gate = mlp + ".experts.{e}." + gate;
  n.expert_up = mlp + ".experts.{e}." + up;
  n.expert_down = mlp + ".experts.{e}." + down;
  n.all_gate_up = mlp + ".experts.gate_up_proj";
  n.all_down = mlp + ".experts.down_proj";
  return n;
}

ParamNames qwen3_moe() { return with_experts("mlp", "gate_proj", "up_proj", "down_proj"); }

ParamNames qwen2_moe() {
  ParamNames n = qwen3_moe();
  n.shared_gate = "mlp.shared_expert.gate_proj";
  n.shared_up = "mlp.shared_expert.up_proj";
  n.shared_down = "mlp.shared_expert.down_proj";
  n.shared_switch = "mlp.shared_expert_gate";
  return n;
}

ParamNames glm4_moe() {
  ParamNames n = qwen3_moe();
  n.router_bias = "mlp.gate.e_score_correction_bias";
  n.shared_gate = "mlp.shared_experts.gate_proj";
  n.shared_up = "mlp.shared_experts.up_proj";
  n.shared_down = "mlp.shared_experts.down_proj";
  return n;
}

ParamNames mixtral() { return with_experts("block_sparse_moe", "w1", "w3", "w2"); }

ParamNames granitemoe() {
  ParamNames n = with_experts("block_sparse_moe", "gate_proj", "up_proj", "down_proj");
  n.router = "block_sparse_moe.router.layer";
  n.all_gate_up = "block_sparse_moe.input_linear.weight";
  n.all_down = "block_sparse_moe.output_linear.weight";
  n.joins_experts = true;
  return n;
}

ParamNames gpt_oss() {
  ParamNames n = kLlama;
  n.sinks = "self_attn.sinks";
  n.router = "mlp.router";
  n.expert_gate_up = "mlp.experts.{e}.gate_up_proj";
  n.expert_down = "mlp.experts.{e}.down_proj";
  n.all_gate_up = "mlp.experts.gate_up_proj";
  n.all_gate_up_bias = "mlp.experts.gate_up_proj_bias";
  n.all_down = "mlp.experts.down_proj";
  n.all_down_bias = "mlp.experts.down_proj_bias";
  n.joins_experts = true;
  return n;
}

ParamNames idefics() {
  ParamNames n = kLlama;
  n.embedding = "model.text_model.embed_tokens";
  n.block = "model.text_model.layers.{i}.";
  n.final_norm = "model.text_model.norm";
  return n;
}

ParamNames siglip() {
  ParamNames n = kLlama;
  n.embedding = "model.vision_model.embeddings.patch_embedding";
  n.positions = "model.vision_model.embeddings.position_embedding";
  n.block = "model.vision_model.encoder.layers.{i}.";
  n.attention_norm = "layer_norm1";
  n.mlp_norm = "layer_norm2";
  n.q_norm = n.k_norm = n.gate = n.head = "";
  n.attention_out = "self_attn.out_proj";
  n.up = "mlp.fc1";
  n.down = "mlp.fc2";
  n.final_norm = "model.vision_model.post_layernorm";
  return n;
}

ParamNames qwen2_vision() {
  ParamNames n = kLlama;
  n.embedding = "visual.patch_embed.proj";
  n.block = "visual.blocks.{i}.";
  n.attention_norm = "norm1";
  n.mlp_norm = "norm2";
  n.qkv = "attn.qkv";
  n.q = n.k = n.v = n.q_norm = n.k_norm = n.gate = n.head = "";
  n.attention_out = "attn.proj";
  n.up = "mlp.fc1";
  n.down = "mlp.fc2";
  n.final_norm = "visual.merger.ln_q";
  return n;
}

// The tower of Qwen2.5-VL, whose MLPs have gates.
ParamNames qwen2_5_vision() {
  ParamNames n = qwen2_vision();
  n.gate = kLlama.gate;
  n.up = kLlama.up;
  n.down = kLlama.down;
  return n;
}

// The layers of a perceiver, which normalize latents and patches separately.
ParamNames perceiver() {
  ParamNames n = kLlama;
  n.embedding = "model.connector.perceiver_resampler.latents";
  n.block = "model.connector.perceiver_resampler.layers.{i}.";
  n.attention_norm = "input_latents_norm";
  n.q_norm = n.k_norm = n.head = "";
  n.final_norm = "model.connector.perceiver_resampler.norm";
  return n;
}

}  // namespace

const ParamNames& param_names(const std::string& family) {
  static const std::map<std::string, ParamNames> others{{"gpt2", kGpt2},
                                                        {"gemma2", gemma()},
                                                        {"gemma3", gemma()},
                                                        {"phi3", phi3()},
                                                        {"glm4", glm4()},
                                                        {"olmo2", olmo2()},
                                                        {"idefics2", idefics()},
                                                        {"idefics3", idefics()},
                                                        {"qwen3_moe", qwen3_moe()},
                                                        {"glm4_moe", glm4_moe()},
                                                        {"qwen2_moe", qwen2_moe()},
                                                        {"mixtral", mixtral()},
                                                        {"olmoe", qwen3_moe()},
                                                        {"granitemoe", granitemoe()},
                                                        {"gpt_oss", gpt_oss()},
                                                        {"smolvlm", idefics()},
                                                        {"siglip", siglip()},
                                                        {"perceiver", perceiver()},
                                                        {"qwen2_vision", qwen2_vision()},
                                                        {"qwen2_5_vision", qwen2_5_vision()}};
  const auto found = others.find(family);
  return found == others.end() ? kLlama : found->second;
}

std::string of_expert(std::string name, int64_t expert) {
  return name.replace(name.find("{e}"), 3, std::to_string(expert));
}

std::string module_of_experts(const std::string& name) {
  const size_t at = name.find(kExperts + '.'), number = at + kExperts.size() + 1;
  const bool is_of_one =
      at != std::string::npos && number < name.size() && name[number] >= '0' && name[number] <= '9';
  return is_of_one ? name.substr(0, at + kExperts.size()) : "";
}

std::string adapted_layer(const std::string& path) {
  const std::string module = module_of_experts(path);
  if (module.empty()) return path;
  const bool down = path.ends_with(".down_proj") || path.ends_with(".w2");
  return module + (down ? kDownOfExperts : kGateUpOfExperts);
}

std::string block_prefix(const ParamNames& names, int64_t block) {
  std::string prefix = names.block;
  return prefix.replace(prefix.find("{i}"), 3, std::to_string(block));
}

}  // namespace flatshard
