#pragma once
// What a stage works with during one call: the stream, memory for scratch and for activations that the
// backward pass needs, and the tokens of the micro-batch. A stage keeps the tensors it saved from forward to
// backward; their memory is the caller's, who rewinds `saved` when they are no longer needed.

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class KvCache;

struct Context {
  Stream& stream;
  Arena& scratch;
  Arena& saved;
  Tensor tokens, positions, boundaries;  // (N), (N), (documents + 1) i32
  Tensor targets;                        // (N) i32
  Tensor weights;                        // (N) f32: what a token's loss counts
  Tensor losses;                         // (N) f32, written by the last stage
  DType dtype = DType::bf16;             // of activations
  bool tf32 = false;                     // of matrix products (kernels/gemm.h)
  // Generation: the tokens are those that follow the cache's, of one text; boundaries are {0, N}.
  const KvCache* cache = nullptr;
  Tensor key_boundaries{};  // (2) i32: 0, tokens of the cache + N
  Tensor logits{};          // (N, V) f32, written by the last stage in place of losses
};

}  // namespace flatshard
