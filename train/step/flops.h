#pragma once
// Floating-point operations that training on one token takes: 6 for each weight of a matrix product (2
// forward, 4 backward), and 12 heads head_dim T for each block's attention over T positions, counted in full
// or, as a causal mask leaves it, by half. Recomputation is not counted: a faster way to the same result is
// faster.

#include "model/model.h"

namespace flatshard {

struct FlopsPerToken {
  double full, causal;
};

FlopsPerToken flops_per_token(const Model& model, int64_t seq_len);

}  // namespace flatshard
