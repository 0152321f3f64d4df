#pragma once
// The global gradient norm and the clip coefficient, computed without a wait on the host:
//   partials[c] = sum of x[i]^2 over interval c          (sum_squares, on each rank's range)
//   sums = sums of groups of the partials of all ranks   (sum_partials)
//   norm = scale sqrt(sum of sums)                       (clip_coefficient)
//   coefficient = scale min(1, max_norm / (norm + 1e-6))
//
// Intervals start at multiples of kSquaresInterval of the global index. An interval is summed in fp32 by a
// fixed tree: elements are distributed round-robin over kSquaresLanes lanes, then halves of the lanes are
// added. A range that starts inside an interval splits it into two partials, which may change the bits.
//
// The partials of a unit of parameters are in the order of its intervals, whichever rank computed them. They
// are added in fp64 in groups of kPartialsPerSum, by a tree as for an interval; the sums of the groups are
// added in order, unit after unit. Zero partials at the end of a unit, its padding, change nothing. The norm
// therefore has the same bits for any number of ranks whose ranges start at interval boundaries.

#include <span>

#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

inline constexpr int64_t kSquaresInterval = 4096;
inline constexpr int64_t kSquaresLanes = 256;
inline constexpr int64_t kPartialsPerSum = 4096;

// The number of intervals that the range [first, first + size) intersects.
constexpr int64_t squares_intervals(int64_t first, int64_t size) {
  return size == 0 ? 0 : (first + size - 1) / kSquaresInterval - first / kSquaresInterval + 1;
}

// The number of sums of partials, where units[i] is the number of intervals of unit i on each rank.
constexpr int64_t sums_of_partials(int64_t ranks, std::span<const int64_t> units) {
  int64_t groups = 0;
  for (const int64_t unit : units) groups += (unit * ranks + kPartialsPerSum - 1) / kPartialsPerSum;
  return groups;
}

struct SumSquares {
  Tensor partials;    // (squares_intervals(first, elements of x)) f32
  Tensor x;           // any shape; f32, bf16 or f16
  int64_t first = 0;  // global index of the first element of x
};

struct SumPartials {
  Tensor sums;      // (sums_of_partials(ranks, units), 2) i32: the words of fp64 sums
  Tensor partials;  // (ranks, n) f32: for each rank, the partials of its intervals of each unit
  // The number of intervals of each unit on a rank; the sum is n. It must be valid until the work is done.
  std::span<const int64_t> units;
};

struct ClipCoefficient {
  Tensor norm;         // (1) f32
  Tensor coefficient;  // (1) f32, the grad_scale of adamw
  Tensor nonfinite;    // (1) i32: 1 if the norm is not finite (the coefficient is then meaningless), else 0
  Tensor sums;         // (n, 2) i32: the sums of sum_partials, of all units in order
  float max_norm;      // infinity: do not clip
  float scale = 1.0f;  // factor from the squared values to the gradients: 1 / loss scale
};

void sum_squares(Stream& stream, const SumSquares& a);
void sum_partials(Stream& stream, const SumPartials& a);
void clip_coefficient(Stream& stream, const ClipCoefficient& a);

double min_bytes(const SumSquares& a);
double min_bytes(const SumPartials& a);
double min_bytes(const ClipCoefficient& a);
double flops(const SumSquares& a);
double flops(const SumPartials& a);
double flops(const ClipCoefficient& a);

namespace cuda {
void sum_squares(Stream& stream, const SumSquares& a);
void sum_partials(Stream& stream, const SumPartials& a);
void clip_coefficient(Stream& stream, const ClipCoefficient& a);
}  // namespace cuda

}  // namespace flatshard
