#pragma once
// The loss of the output head (head.h) from exponentials, on GPUs where the project's kernel multiplies
// (use_product_kernels). The product of a chunk of N tokens writes no logits. For each row and tile of 256
// columns it writes the largest logit and the sum of exp(logit - largest), in fp32; for each row the logit of
// the target; and, if gradients are wanted, exp(logit - largest) in 16 bits. The gradients replace these:
//
//   loss = weight (ln sum exp(x) - x[target])      dlogits = weight (softmax(x) - onehot(target))
//
// A logit then moves 6 bytes instead of 14, and none for a loss alone. Losses never see 16 bits. A gradient
// is rounded twice, that of the target once.

#include "kernels/gemm.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct HeadExponentials {
  static constexpr int64_t kTile = 256, kUnit = 8;  // columns of a tile, and those that one access takes

  Tensor exps;              // (N, columns_of(V)) of x's dtype; empty: not written
  Tensor tiles;             // (N, tiles_of(V), 2) f32: the largest logit, and the sum
  Tensor target_logits;     // (N) f32; not written where there is no target
  Tensor x;                 // (N, C) bf16 or f16, C a multiple of 8
  Tensor w;                 // (V, C) of x's dtype
  Tensor targets;           // (N) i32; negative: none
  int64_t valid_vocab = 0;  // 0: V; exps of later columns are 0

  static int64_t columns_of(int64_t V) { return (V + kUnit - 1) / kUnit * kUnit; }
  static int64_t tiles_of(int64_t V) { return (V + kTile - 1) / kTile; }
};

struct HeadExponentialsLoss {
  Tensor loss;            // (N) f32
  Tensor target_weights;  // (N) f32
  HeadExponentials of;
  bool gradient = false;  // writes dlogits in place of the exponentials
};

// The product.
void head_exponentials(Stream& stream, const HeadExponentials& a);
void head_exponentials_loss(Stream& stream, const HeadExponentialsLoss& a);

double min_bytes(const HeadExponentials& a);
double min_bytes(const HeadExponentialsLoss& a);
double flops(const HeadExponentials& a);
double flops(const HeadExponentialsLoss& a);

namespace cuda {
// A build without code for sm_90 contains head_exponentials_sm90_missing.cpp instead.
void head_exponentials_sm90(Stream& stream, const HeadExponentials& a);
void head_exponentials_loss_sm90(Stream& stream, const HeadExponentialsLoss& a);
}  // namespace cuda

}  // namespace flatshard
