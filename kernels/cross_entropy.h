#pragma once
// Cross-entropy of N rows of logits x over a vocabulary of V, with a target and a weight for each row:
//   nll = ln sum exp(x) - x[target]      loss = weight nll
//   dlogits = weight (softmax(x) - onehot(target))
// With a soft cap, the logits are the y of softcap (elementwise.h), and dlogits is the gradient of its x:
//   dlogits = weight (softmax(x) - onehot(target)) (1 - (x / softcap)^2)
// A negative target (-100, by custom) is ignored: its loss and gradient are 0, whatever the logits. Columns
// from valid_vocab on pad the vocabulary: the loss ignores them, and their gradient is 0. A target outside
// the vocabulary throws an Error before anything is written; on a GPU the kernel traps, and the Error names
// no target.
//
// The sums of a row run over its columns in a fixed order, in fp32.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct CrossEntropyForward {
  Tensor loss;              // (N) f32
  Tensor logits;            // (N, V)
  Tensor targets;           // (N) i32
  Tensor target_weights;    // (N) f32
  int64_t valid_vocab = 0;  // 0: all columns
};

// Computes the loss as well, at no extra cost.
struct CrossEntropyBackward {
  Tensor dlogits;           // (N, V), any float dtype; may be the tensor of the logits
  Tensor loss;              // (N) f32
  Tensor logits;            // (N, V)
  Tensor targets;           // (N) i32
  Tensor target_weights;    // (N) f32
  int64_t valid_vocab = 0;  // 0: all columns
  float softcap = 0;        // 0: none
};

// Throws an Error, in stream order, if a target is outside a vocabulary of V. Callers that compute in chunks
// check all targets first.
void check_targets(Stream& stream, const Tensor& targets, int64_t V);

void cross_entropy_forward(Stream& stream, const CrossEntropyForward& a);
void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& a);

double min_bytes(const CrossEntropyForward& a);
double min_bytes(const CrossEntropyBackward& a);
double flops(const CrossEntropyForward& a);
double flops(const CrossEntropyBackward& a);

namespace cuda {
void check_targets(Stream& stream, const Tensor& targets, int64_t V);
// Both directions: computes no gradient if a.dlogits is empty.
void cross_entropy(Stream& stream, const CrossEntropyBackward& a);
}  // namespace cuda

}  // namespace flatshard
