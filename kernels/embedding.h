#pragma once
// Embedding of N tokens in C features, w of (V, C):
//   y[n] = w[tokens[n]]      dw[tokens[n]] += dy[n]
// and with a learned table of positions, p of (P, C), as in GPT-2:
//   y[n] = w[tokens[n]] + p[positions[n]]      dp[positions[n]] += dy[n]
// The backward pass adds to each row in the order of n, whatever the threads. A token or position outside its
// table is an Error before anything is written; on a GPU the kernel stops itself there, an Error that names
// none.

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
  Tensor dw;           // (V, C) f32, added to; empty where w is frozen
  Tensor dy;           // (N, C)
  Tensor tokens;       // (N) i32
  Tensor dp{};         // (P, C) f32, added to; empty: none, or frozen
  Tensor positions{};  // (N) i32
};

void embedding_forward(Stream& stream, const EmbeddingForward& a);
void embedding_backward(Stream& stream, const EmbeddingBackward& a);

double min_bytes(const EmbeddingForward& a);
double min_bytes(const EmbeddingBackward& a);  // as if every token were another one
double flops(const EmbeddingForward& a);
double flops(const EmbeddingBackward& a);

namespace cuda {
void embedding_forward(Stream& stream, const EmbeddingForward& a);
void embedding_backward(Stream& stream, const EmbeddingBackward& a);
}  // namespace cuda

}  // namespace flatshard
