#pragma once
// The shapes of a matrix product, for the cases of the benchmark and for tests with random shapes.

#include "bench/case.h"
#include "kernels/swiglu.h"

namespace flatshard::bench {

// What a product ends with (kernels/product_end.h).
enum class GemmEnd { none, gated, gradient, rotated };

struct GemmOptions {
  bool transpose_a = false, transpose_b = false, bias = false, accumulate = false;
  float alpha = 1;
  bool addend = false;
  bool packed = false;   // every matrix is columns of wider rows
  bool aligned = false;  // rows of every matrix have a multiple of 8 columns in memory, as logits have
  bool own = false;      // by the project's kernel, on a GPU that has it
  GemmEnd end = GemmEnd::none;
  Gate function = Gate::silu;  // the gate of that end
  int64_t head = 64;           // the columns of a head that is rotated; all heads are but the last of several
  bool apart = false;          // the end is an op of its own
};

struct GemmSetting {
  DType in, out;
  int64_t M, N, K;
  GemmOptions with{};
};

Case gemm_case(const GemmSetting& p);

}  // namespace flatshard::bench
