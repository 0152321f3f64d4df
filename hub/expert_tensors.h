#pragma once
// Adapters of experts in PEFT's files. For transformers 5 all experts of a block are one parameter, and its
// adapter is one tensor for a and one for b. With E experts of width F, C columns and rank r:
//   experts.base_layer.lora_A.weight  (E r, C)     experts.base_layer.lora_B.weight  (2F, r E)   gate and up
//   experts.lora_A.weight             (E r, F)     experts.lora_B.weight             (C, r E)    down
// Expert e has rows e r + j of a, and columns j E + e of b; its gate and its up have the same a. If only one
// parameter has an adapter, the name of its tensors lacks "base_layer". A model has these tensors as they are
// (model/expert_adapter.h). Their parts are merged into the weights of single experts.
//
// With transformers 4, each layer of each expert had its own adapter, such as
// experts.3.gate_proj.lora_A.weight. These are read as the tensors above, as PEFT reads them: gate and up of
// rank r are one layer of rank 2r, where the a of one is above that of the other, and b is zero elsewhere.

#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "model/config.h"
#include "model/lora.h"

namespace flatshard {

// The part of a tensor that is an a or a b of a layer of an expert.
struct ExpertPart {
  std::string parameter;  // such as model.layers.0.mlp.experts.3.gate_proj.lora_B.weight
  bool is_a;
  std::string layer;  // the layer of all experts
  int64_t experts, expert, rank;
  int64_t rows, columns;  // shape of the part
  int64_t first_row = 0;  // row of b at which the part begins: 0, or F for up
};

// Whether a tensor's name, without the prefix of adapters, is that of an adapter of all experts.
bool is_of_all_experts(const std::string& name);

// The parts of such a tensor. `parameters` are PEFT's target_parameters. Throws an Error if the shape does
// not fit the model; `where` begins it.
std::vector<ExpertPart> expert_parts(const std::string& name, const SafetensorsEntry& entry,
                                     const ModelConfig& config, std::span<const std::string> parameters,
                                     const std::string& where);

// Elements [first, first + count) of a part, from the values of the whole tensor.
void read_part(const ExpertPart& part, std::span<const float> whole, int64_t first, int64_t count, float* to);

// A tensor of a single expert, and its place in the tensor of all experts.
struct SingleExpert {
  const SafetensorsEntry* entry;
  int64_t expert;
  int64_t first_rank, first_row;
};
// The values of a tensor of all experts, whose shape is that of `of_all`.
std::vector<float> joined_values(const SafetensorsEntry& of_all, int64_t experts,
                                 std::span<const SingleExpert> singles);

// Adds PEFT's names of parameters to the targets. Without any, a list of targets that names gate and up of
// single experts selects the layer of both, with twice the rank and the same scale.
void select_experts(LoraConfig& lora, std::span<const std::string> parameters, const std::string& family);

// Whether a target is the name of a layer of single experts.
bool names_single_experts(const std::string& target, const std::string& family);

// The first layer of an MLP beside experts whose adapter PEFT 0.21 takes for one of experts, on transformers
// 5, and does not open; "" if there is none.
std::string layer_lost_in_peft(const Adapters& adapters, const std::string& family);

}  // namespace flatshard
