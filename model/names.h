#pragma once
// What Hugging Face calls each parameter: a table per group of families. {i} stands for the number of the
// block.

#include <string>

namespace flatshard {

struct ParamNames {
  std::string embedding, positions;
  std::string block;  // prefix of a block's parameters: "model.layers.{i}."
  std::string norm1, q, k, v, qkv, q_norm, k_norm, attention_out;
  std::string norm2, gate, up, down;
  std::string final_norm, head;
  bool linear_in_out;  // linear weights are stored (in, out), and q, k, v as one matrix
};

// The table of a family; the names in it are without ".weight" and ".bias".
const ParamNames& param_names(const std::string& family);

// block with {i} replaced.
std::string block_prefix(const ParamNames& names, int64_t block);

}  // namespace flatshard
