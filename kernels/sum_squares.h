#pragma once
// The global gradient norm and the clip coefficient, computed without a wait on the host:
//   partials[c] = sum of x[i]^2 over chunk c             (sum_squares, on each rank's range)
//   norm = scale sqrt(sum of partials)                   (clip_coefficient, on the partials of all ranks)
//   coefficient = scale min(1, max_norm / (norm + 1e-6))
//
// Chunks start at multiples of kSquaresChunk of the global index. A chunk is summed in fp32 by a fixed tree:
// elements are distributed round-robin over kSquaresLanes lanes, then halves of the lanes are added. Partials
// are added in order in fp64. The norm therefore has the same bits for any number of ranks whose ranges start
// at chunk boundaries. A range that starts inside a chunk splits it into two partials, which may change the
// bits. Zero partials change nothing, so ranks may pad theirs to a common length.

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

inline constexpr int64_t kSquaresChunk = 4096;
inline constexpr int64_t kSquaresLanes = 256;

// The number of chunks that the range [first, first + size) intersects.
constexpr int64_t squares_chunks(int64_t first, int64_t size) {
  return size == 0 ? 0 : (first + size - 1) / kSquaresChunk - first / kSquaresChunk + 1;
}

struct SumSquares {
  Tensor partials;    // (squares_chunks(first, elements of x)) f32
  Tensor x;           // any shape; f32, bf16 or f16
  int64_t first = 0;  // global index of the first element of x
};

struct ClipCoefficient {
  Tensor norm;         // (1) f32
  Tensor coefficient;  // (1) f32, the grad_scale of adamw
  Tensor nonfinite;    // (1) i32: 1 if the norm is not finite (the coefficient is then meaningless), else 0
  Tensor partials;     // (n) f32
  float max_norm;      // infinity: do not clip
  float scale = 1.0f;  // factor from the squared values to the gradients: 1 / loss scale
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
