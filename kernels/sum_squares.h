#pragma once
// The norm of all gradients and the factor that clips it, without the host ever waiting for either:
//   partials[c] = sum of x[i]^2 over chunk c             (sum_squares, on each rank's range)
//   norm = scale sqrt(sum of partials)                   (clip_coefficient, on the partials of all ranks)
//   coefficient = scale min(1, max_norm / (norm + 1e-6))
//
// Chunks are cut at multiples of kSquaresChunk of the global index. A chunk is summed in fp32 by a fixed
// tree: kSquaresLanes lanes take elements in turn, then halves of the lanes are added. Partials are added in
// order in fp64. So the norm has the same bits for every number of ranks whose ranges begin at multiples of
// the chunk; where a range begins inside a chunk the chunk is two partials, and the bits are those of this
// cut. Partials of zero change nothing, so ranks may pad theirs to one length.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

inline constexpr int64_t kSquaresChunk = 4096;
inline constexpr int64_t kSquaresLanes = 256;

// How many chunks the range [first, first + size) touches.
constexpr int64_t squares_chunks(int64_t first, int64_t size) {
  return size == 0 ? 0 : (first + size - 1) / kSquaresChunk - first / kSquaresChunk + 1;
}

struct SumSquares {
  Tensor partials;    // (squares_chunks(first, elements of x)) f32
  Tensor x;           // any shape; f32, bf16 or f16
  int64_t first = 0;  // the global index of x's first element
};

struct ClipCoefficient {
  Tensor norm;         // (1) f32
  Tensor coefficient;  // (1) f32, what adamw takes as grad_scale
  Tensor nonfinite;    // (1) i32: 1 where the norm is not finite (the coefficient is then of no use), else 0
  Tensor partials;     // (n) f32
  float max_norm;      // infinity: do not clip
  float scale = 1.0f;  // the gradients are this times the values that were squared: 1 / the loss scale
};

void sum_squares(Stream& stream, const SumSquares& a);
void clip_coefficient(Stream& stream, const ClipCoefficient& a);

double min_bytes(const SumSquares& a);
double min_bytes(const ClipCoefficient& a);
double flops(const SumSquares& a);
double flops(const ClipCoefficient& a);

namespace cuda {
void sum_squares(Stream& stream, const SumSquares& a);
void clip_coefficient(Stream& stream, const ClipCoefficient& a);
}  // namespace cuda

}  // namespace flatshard
