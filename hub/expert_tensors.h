#pragma once
// Adapters of experts as PEFT writes them for transformers 5, where all experts of a block are one parameter.
// With E experts of width F, C columns and rank r:
//   experts.base_layer.lora_A.weight  (E r, C)     experts.base_layer.lora_B.weight  (2F, r E)   gate and up
//   experts.lora_A.weight             (E r, F)     experts.lora_B.weight             (C, r E)    down
// Expert e has rows e r + j of a, and columns j E + e of b; its gate and its up have the same a. If only one
// parameter has an adapter, the name of its tensors lacks "base_layer". Most families have adapters of each
// expert here, which are parts of these tensors. Those whose files join experts (model/names.h) have the
// tensors as they are; their parts are merged into the weights of each expert.

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
  std::string layer;  // that has the adapter: the part's own, or that of all experts
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

// Adds PEFT's names of parameters to the targets; they select experts of all blocks. Where experts have
// adapters of their own, targets and patterns for their layers replace the names.
void select_experts(LoraConfig& lora, std::span<const std::string> parameters, const std::string& family);

}  // namespace flatshard
