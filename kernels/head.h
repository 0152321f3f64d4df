#pragma once
// The output head and its cross-entropy over N tokens, w (V, C):
//   logits = x w^T      loss = cross_entropy(logits)      dx = dlogits w      dw += or = dlogits^T x
// with logits = softcap(x w^T) (elementwise.h) if softcap is positive. It is computed chunk by chunk of
// tokens, so that the (N, V) logits never exist at once. Logits are fp32; dlogits is rounded to x's dtype
// before its two products. Losses, targets, weights and valid_vocab are as in cross_entropy.h.
//
// A loss may also depend on all tokens of an answer (answer_loss.h). Then `weigh` computes the weights of the
// gradients from the losses of a chunk; the chunk has all tokens of its answers.
//
// A chunk of n tokens needs n V logits of scratch, or as many gradients if the project's kernel multiplies
// (head_exponentials.h), and reads and writes all of dw. The bits of the result depend on the chunk size: dw
// is summed chunk by chunk, and a matrix product with fewer rows may sum in another order.

#include <functional>

#include "kernels/cross_entropy.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// One chunk: the rows of each tensor that belong to its tokens.
struct HeadChunk {
  int64_t first;           // index of the chunk's first token
  Tensor x, logits;        // logits in f32; empty if there are exponentials instead
  Tensor dlogits{}, dx{};  // set only in the backward pass
};
using HeadWork = std::function<void(const HeadChunk&)>;

struct HeadLossForward {
  Tensor loss;               // (N) f32
  Tensor x;                  // (N, C)
  Tensor w;                  // (V, C), of x's dtype
  Tensor targets;            // (N) i32
  Tensor target_weights;     // (N) f32
  int64_t valid_vocab = 0;   // 0: V
  int64_t chunk = 0;         // tokens, at most N; 0: kHeadChunk
  bool tf32 = false;         // allows TF32 in the matrix products (gemm.h)
  float softcap = 0;         // soft cap of the logits; 0: none
  HeadWork add_to_logits{};  // called after the product of a chunk, before the soft cap
};

// Computes the loss as well.
struct HeadLossBackward {
  Tensor dx;                    // (N, C)
  Tensor dw;                    // (V, C) f32; empty if w is frozen
  Tensor loss;                  // (N) f32
  Tensor x;                     // (N, C), of dx's dtype
  Tensor w;                     // (V, C), of x's dtype
  Tensor targets;               // (N) i32
  Tensor target_weights;        // (N) f32
  int64_t valid_vocab = 0;      // 0: V
  int64_t chunk = 0;            // tokens, at most N; 0: kHeadChunk
  bool tf32 = false;            // allows TF32 in the matrix products (gemm.h)
  float softcap = 0;            // soft cap of the logits; 0: none
  bool accumulate = true;       // false: dw is written
  HeadWork add_to_logits{};     // called after the product of a chunk, before the soft cap
  HeadWork add_to_gradients{};  // called when dlogits and dx of a chunk are complete
  HeadWork weigh{};             // called when the losses of a chunk are complete: writes its gradient_weights
  Tensor gradient_weights{};    // (N) f32, only with weigh: the weights of the gradients; target_weights then
                                // weigh only the losses
};

// The default chunk: with this many rows the products of a GPU are limited by arithmetic, not by dw.
inline constexpr int64_t kHeadChunk = 4096;

void head_loss_forward(Stream& stream, Arena& scratch, const HeadLossForward& a);
void head_loss_backward(Stream& stream, Arena& scratch, const HeadLossBackward& a);

double min_bytes(const HeadLossForward& a);
double min_bytes(const HeadLossBackward& a);
double flops(const HeadLossForward& a);
double flops(const HeadLossBackward& a);

}  // namespace flatshard
