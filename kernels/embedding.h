#pragma once
// Embedding of N tokens, w (V, C):
//   y[n] = w[tokens[n]]      dw[tokens[n]] += dy[n]
// and with learned positions, p (P, C), as in GPT-2:
//   y[n] = w[tokens[n]] + p[positions[n]]      dp[positions[n]] += dy[n]
// The backward pass sorts the tokens, keeping equal tokens in the order of n, and adds the rows of each token
// in that order, independent of the number of threads. A token or position outside its table throws an Error
// before anything is written; on a GPU the kernel traps, and the Error names no token.

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct EmbeddingForward {
  Tensor y;            // (N, C)
  Tensor w;            // (V, C), of y's dtype
  Tensor tokens;       // (N) i32
  Tensor p{};          // (P, C), of y's dtype; empty: no positions
  Tensor positions{};  // (N) i32
};

struct EmbeddingBackward {
  Tensor dw;           // (V, C) f32, the gradient is added; empty if w is frozen
  Tensor dy;           // (N, C)
  Tensor tokens;       // (N) i32
  Tensor dp{};         // (P, C) f32, the gradient is added; empty: no positions, or frozen
  Tensor positions{};  // (N) i32
};

void embedding_forward(Stream& stream, const EmbeddingForward& a);
void embedding_backward(Stream& stream, Arena& scratch, const EmbeddingBackward& a);

double min_bytes(const EmbeddingForward& a);
double min_bytes(const EmbeddingBackward& a);  // assumes that no token repeats
double flops(const EmbeddingForward& a);
double flops(const EmbeddingBackward& a);

namespace cuda {
void embedding_forward(Stream& stream, const EmbeddingForward& a);
void embedding_backward(Stream& stream, const EmbeddingBackward& a, const Tensor& sort);
}  // namespace cuda

}  // namespace flatshard
