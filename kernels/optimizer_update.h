#pragma once
// The argument of every optimizer: the update of a shard, in place. Each op's header (adamw.h, adamw8bit.h,
// lion.h) states its formula, the tensors of its state and the hyperparameters that it reads. All of them
// have in common:
//   g' = g grad_scale      p decays to p (1 - lr weight_decay) before decay_end      copy = p, after the
//   update
// Arithmetic on elements is fp32; the coefficients are computed in double on the host. If skip is not zero
// nothing is written, state and copy included, so ranks that share the flag skip a step together.

#include <array>
#include <initializer_list>

#include "runtime/tensor.h"

namespace flatshard {

inline constexpr size_t kMostStates = 4;

// The tensors of an optimizer's state in the order of its op's header; the rest are empty.
using OptimizerState = std::array<Tensor, kMostStates>;

// The range of parameters that an update works on.
struct OptimizerShard {
  Tensor p;     // (n) f32, the master weights
  Tensor copy;  // (n) f32, bf16 or f16: p rounded to the compute dtype; may be empty
  Tensor g;     // (n) f32, bf16 or f16, the gradients
  OptimizerState state;
  int64_t decay_end;  // number of leading elements with weight decay, in [0, n]
};

struct OptimizerUpdate {
  OptimizerShard shard;
  Tensor grad_scale;  // (1) f32, the clip coefficient; read when the kernel runs
  Tensor skip;        // (1) i32, read when the kernel runs; empty: zero
  double lr;
  double beta1, beta2;
  double eps = 1e-8;
  double weight_decay = 0.0;
  int64_t step;  // counted from 1, without skipped steps
};

// A tensor of the state that an op requires: one value for every `block` elements.
struct RequiredState {
  const char* name;
  DType dtype = DType::f32;
  int64_t block = 1;
};

// Throws an Error that names `op` unless the shard has these states and all arguments are valid, but for eps
// and step, which not every optimizer reads.
void check_update(const char* op, const OptimizerUpdate& a, std::initializer_list<RequiredState> states);

// An update reads and writes p and the state, reads g and writes the copy.
double min_bytes(const OptimizerShard& shard);

}  // namespace flatshard
