#pragma once
// Floating-point operations to train on one token: 6 per weight of a matrix product (2 forward, 4 backward),
// or 4 if it is frozen, plus 12 heads head_dim T per block for attention over T positions, counted in full
// or, for a causal mask, half. Recomputation is not counted: these are model FLOPs. Layers that read images
// are not counted either: their work follows the number of patches, not of tokens.

#include "model/model.h"

namespace flatshard {

struct FlopsPerToken {
  double full, causal;
  // What a repeated forward pass of all blocks computes at least, apart from attention, and attention: an
  // MLP's last product is not repeated.
  double repeated = 0, repeated_attention = 0;
};

FlopsPerToken flops_per_token(const Model& model, int64_t seq_len);

}  // namespace flatshard
