#pragma once
// Parameter names in Hugging Face checkpoints, one table for GPT-2 and one for the other families. {i} is the
// index of the block.

#include <string>

namespace flatshard {

struct ParamNames {
  std::string embedding, positions;
  std::string block;  // prefix of a block's parameters: "model.layers.{i}."
  std::string norm1, q, k, v, qkv, q_norm, k_norm, attention_out;
  std::string norm2, gate, up, down;
  std::string final_norm, head;
  bool transposed_weights;  // linear weights are stored as (in, out)

  bool fused_qkv() const { return !qkv.empty(); }  // q, k and v are one projection
};

// The table of a family. Layer names lack the suffix ".weight" or ".bias".
const ParamNames& param_names(const std::string& family);

// names.block with {i} replaced.
std::string block_prefix(const ParamNames& names, int64_t block);

}  // namespace flatshard
