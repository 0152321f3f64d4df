#pragma once
// Parameter names in Hugging Face checkpoints. A name table also determines which norms a block has, and
// which of its projections are fused: an empty name means that there is no such layer. {i} is the index of
// the block.

#include <string>

namespace flatshard {

struct ParamNames {
  std::string embedding, positions;
  std::string block;  // prefix of a block's parameters: "model.layers.{i}."
  // Attention and MLP each have a norm before the input, after the output, or both.
  std::string attention_norm, attention_out_norm, mlp_norm, mlp_out_norm;
  std::string q, k, v, qkv;  // qkv: one projection with the rows of q, then k, then v
  std::string q_norm, k_norm, attention_out;
  std::string sinks{};                  // the whole name of a parameter
  std::string gate, up, gate_up, down;  // gate_up: one projection with the rows of gate, then up
  // Of a mixture of experts in place of the MLP; {e} is the index of the expert. router_bias is the whole
  // name of a parameter.
  std::string router{}, router_bias{}, expert_gate{}, expert_up{}, expert_down{};
  // Tensors that files may have for all experts of a block, by their whole names: (E, 2F, C) with the gate of
  // an expert before its up, and (E, C, F). Files that we write have them if `joins_experts`.
  std::string all_gate_up{}, all_down{};
  bool joins_experts = false;
  // Some families have gate and up in turn. The tensors are then (E, C, 2F) and (E, F, C), expert_gate_up and
  // expert_down name their parts, and the biases of all experts are one parameter, (E, 2F) and (E, C).
  std::string expert_gate_up{}, all_gate_up_bias{}, all_down_bias{};
  // The expert that all tokens share, and the gate of its output.
  std::string shared_gate{}, shared_up{}, shared_down{}, shared_switch{};
  std::string final_norm, head;
  bool transposed_weights = false;  // linear weights are stored as (in, out)

  bool interleaved_experts() const { return !expert_gate_up.empty(); }
  bool fused_qkv() const { return !qkv.empty(); }
  bool fused_gate_up() const { return !gate_up.empty(); }
};

// The modules of a connector that change the width.
inline constexpr char kModalityProjection[] = "model.connector.modality_projection";
inline constexpr char kMerger[] = "visual.merger.mlp";

// The table of a family, or of a part of a model that reads images: its tower (config.h), or "perceiver".
// Layer names lack the suffix ".weight" or ".bias".
const ParamNames& param_names(const std::string& family);

// names.block with {i} replaced.
std::string block_prefix(const ParamNames& names, int64_t block);
// A name with {e} replaced.
std::string of_expert(std::string name, int64_t expert);
// The layers of all experts of a block that have adapters, in their module, in every family.
inline constexpr char kGateUpOfExperts[] = ".gate_up_proj", kDownOfExperts[] = ".down_proj";
// The layer that has the adapter of this one: for a layer of an expert, such as
// model.layers.0.mlp.experts.3.up_proj, that of all, model.layers.0.mlp.experts.gate_up_proj; otherwise the
// layer itself.
std::string adapted_layer(const std::string& path);
// The module of all experts of a block, such as model.layers.0.mlp.experts, if the name is that of a part of
// one expert; otherwise "".
std::string module_of_experts(const std::string& name);

}  // namespace flatshard
