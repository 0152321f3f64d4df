#pragma once
// The output head and its cross-entropy over N tokens of C features and a vocabulary of V, w of (V, C):
//   logits = x w^T      loss = cross_entropy(logits)      dx = dlogits w      dw += dlogits^T x
// computed chunk by chunk of tokens, so that the (N, V) logits never exist at once. Logits are fp32; dlogits
// is rounded to x's dtype before its two products. Losses, targets, weights and valid_vocab are those
// of cross_entropy.h.
//
// The chunk belongs to the definition of a result's bits: dw is summed chunk by chunk, in order, and a matrix
// product of fewer rows may sum each of them in another order.

#include "kernels/cross_entropy.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct HeadLossForward {
  Tensor loss;              // (N) f32
  Tensor x;                 // (N, C)
  Tensor w;                 // (V, C), of x's dtype
  Tensor targets;           // (N) i32
  Tensor weights;           // (N) f32
  int64_t valid_vocab = 0;  // 0: V
  int64_t chunk = 0;        // tokens; 0: head_chunk
  bool tf32 = false;        // of its matrix products (gemm.h)
};

// The loss as well, in one pass.
struct HeadLossBackward {
  Tensor dx;                // (N, C)
  Tensor dw;                // (V, C) f32, added to; empty where w is frozen
  Tensor loss;              // (N) f32
  Tensor x;                 // (N, C), of dx's dtype
  Tensor w;                 // (V, C), of x's dtype
  Tensor targets;           // (N) i32
  Tensor weights;           // (N) f32
  int64_t valid_vocab = 0;  // 0: V
  int64_t chunk = 0;        // tokens; 0: head_chunk
  bool tf32 = false;        // of its matrix products (gemm.h)
};

// The tokens of a chunk where none are asked for: as many as give kHeadLogitsBytes of fp32 logits, in
// multiples of 64, at least 64 and at most N. A longer chunk needs more scratch and reads and writes dw less
// often.
inline constexpr int64_t kHeadLogitsBytes = 128 << 20;
int64_t head_chunk(int64_t N, int64_t V);

void head_loss_forward(Stream& stream, Arena& scratch, const HeadLossForward& a);
void head_loss_backward(Stream& stream, Arena& scratch, const HeadLossBackward& a);

double min_bytes(const HeadLossForward& a);
double min_bytes(const HeadLossBackward& a);
double flops(const HeadLossForward& a);
double flops(const HeadLossBackward& a);

}  // namespace flatshard
