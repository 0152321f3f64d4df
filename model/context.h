#pragma once
// The inputs of one call of a layer: the stream, an arena for scratch, an arena for activations saved for the
// backward pass, and the tokens of the micro-batch. A layer remembers the tensors it saved; the caller owns
// their memory and rewinds `saved` when they are no longer needed.

#include <optional>
#include <span>

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class KvCache;
struct TextRows;

// Identifies the random numbers of one micro-batch: those of every layer and element follow from it.
struct RandomDraw {
  uint64_t seed, step;
};

struct Context {
  Stream& stream;
  Arena& scratch;
  Arena& saved;
  Tensor tokens, positions, boundaries;  // (N), (N), (documents + 1) i32
  Tensor targets;                        // (N) i32
  Tensor target_weights;                 // (N) f32, the factor of each token's loss
  Tensor losses;                         // (N) f32, written by the last layer
  DType dtype = DType::bf16;             // of activations
  bool tf32 = false;                     // of matrix products (kernels/gemm.h)
  int64_t head_chunk = 0;                // tokens whose logits exist at once (kernels/head.h)
  bool input_gradient = true;            // a backward pass computes the gradient of the layer's input
  std::optional<RandomDraw> dropout{};   // empty: no dropout
  // Generation: the tokens continue texts in the cache.
  const KvCache* cache = nullptr;
  std::span<const TextRows> texts{};
  Tensor text_boundaries{};  // (texts, 4) i32: 0, rows, 0, cached tokens + rows; read on a GPU only
  // The last layer writes one of these in place of losses.
  Tensor logits{};  // (N, V) f32
  Tensor states{};  // (N, hidden): what the last norm yields
};

}  // namespace flatshard
