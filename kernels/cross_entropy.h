#pragma once
// Cross-entropy of N rows of logits x over a vocabulary of V, with a target and a weight for each row:
//   lse = ln sum exp(x)      nll = lse - (1 - e) x[target] - e mean(x) + z lse^2      loss = weight nll
//   dlogits = weight ((1 + 2 z lse) softmax(x) - (1 - e) onehot(target) - e / V)
// with e the label smoothing and z the weight of the z-loss. A negative target (-100, by custom) is ignored:
// its loss and gradient are 0, whatever the logits. Columns from valid_vocab on pad the vocabulary: they
// count nowhere, V above is valid_vocab, and their gradient is 0. A target outside the vocabulary is an Error
// before anything is written; on a GPU the kernel stops itself there, an Error that names none.
//
// A row's sums run over its columns in one fixed order, in fp32.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct CrossEntropyOptions {
  float label_smoothing = 0;  // e, in [0, 1]
  float z_loss = 0;           // z, at least 0
  int64_t valid_vocab = 0;    // 0: all columns
};

struct CrossEntropyForward {
  Tensor loss;     // (N) f32
  Tensor logits;   // (N, V)
  Tensor targets;  // (N) i32
  Tensor weights;  // (N) f32
  CrossEntropyOptions options{};
};

// The loss as well: it costs nothing beside the gradient.
struct CrossEntropyBackward {
  Tensor dlogits;  // (N, V), of any float dtype; may be the tensor of the logits
  Tensor loss;     // (N) f32
  Tensor logits;   // (N, V)
  Tensor targets;  // (N) i32
  Tensor weights;  // (N) f32
  CrossEntropyOptions options{};
};

// The Error of a target outside a vocabulary of V, in stream order; for callers that compute chunk by chunk.
void check_targets(Stream& stream, const Tensor& targets, int64_t V);

void cross_entropy_forward(Stream& stream, const CrossEntropyForward& a);
void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& a);

double min_bytes(const CrossEntropyForward& a);
double min_bytes(const CrossEntropyBackward& a);
double flops(const CrossEntropyForward& a);
double flops(const CrossEntropyBackward& a);

namespace cuda {
void check_targets(Stream& stream, const Tensor& targets, int64_t V);
// Both directions: the gradient is left out when a.dlogits is empty.
void cross_entropy(Stream& stream, const CrossEntropyBackward& a);
}  // namespace cuda

}  // namespace flatshard
