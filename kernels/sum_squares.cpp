#include "kernels/sum_squares.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int kVectors = kSquaresLanes / kWidth;
constexpr int64_t kIntervalsPerTask = 32;

template <class T>
float interval_squares(const T* x, int64_t n) {
  Floats lane[kVectors] = {};
  const auto add = [&](int k, int64_t i, auto lanes) {
    const Floats v = load(x + i, lanes);
    lane[k] = fma(v, v, lane[k]);
  };
  const int64_t whole = n - n % kSquaresLanes;
  for (int64_t i = 0; i < whole; i += kSquaresLanes)
    for (int k = 0; k < kVectors; ++k) add(k, i + k * kWidth, Full{});
  for_each_vector(n - whole,
                  [&](int64_t i, auto lanes) { add(static_cast<int>(i / kWidth), whole + i, lanes); });
  for (int half = kVectors / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) lane[k] += lane[k + half];
  return sum(lane[0]);
}

template <class T>
void squares(const SumSquares& a) {
  const int64_t last = a.first + a.x.size(), first_interval = a.first / kSquaresInterval;
  parallel_blocks(a.partials.size(), kIntervalsPerTask, [&](int64_t first_of_task, int64_t end_of_task) {
    for (int64_t c = first_of_task; c < end_of_task; ++c) {
      const int64_t begin = std::max(a.first, (first_interval + c) * kSquaresInterval);
      const int64_t end = std::min(last, (first_interval + c + 1) * kSquaresInterval);
      a.partials.as<float>()[c] = interval_squares(a.x.as<T>() + (begin - a.first), end - begin);
    }
  });
}

// The sum of the partials [begin, end) of a unit, whose first partial on a rank is partials[rank n + first].
double group_sum(const SumPartials& a, int64_t first, int64_t unit, int64_t begin, int64_t end) {
  const float* partials = a.partials.as<float>();
  const int64_t n = a.partials.shape[-1];
  double lane[kSquaresLanes] = {};
  for (int64_t c = begin; c < end;) {
    const int64_t rank = c / unit, end_of_rank = std::min(end, (rank + 1) * unit);
    const float* of_rank = partials + rank * n + first - rank * unit;
    for (; c < end_of_rank; ++c) lane[(c - begin) % kSquaresLanes] += static_cast<double>(of_rank[c]);
  }
  for (int64_t half = kSquaresLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return lane[0];
}

void add_groups(const SumPartials& a) {
  int32_t* const words = a.sums.as<int32_t>();
  int64_t first = 0, done = 0;
  for (const int64_t unit : a.units) {
    const int64_t intervals = unit * a.partials.shape[0];
    const int64_t groups = sums_of_partials(a.partials.shape[0], {&unit, 1});
    parallel_for(groups, [&](int64_t group) {
      const int64_t begin = group * kPartialsPerSum, end = std::min(begin + kPartialsPerSum, intervals);
      const double sum = group_sum(a, first, unit, begin, end);
      std::memcpy(words + 2 * (done + group), &sum, sizeof sum);
    });
    first += unit;
    done += groups;
  }
}

void clip(const ClipCoefficient& a) {
  double total = 0.0;
  for (int64_t i = 0; i < a.sums.shape[0]; ++i) {
    double sum;
    std::memcpy(&sum, a.sums.as<int32_t>() + 2 * i, sizeof sum);
    total += sum;
  }
  const float norm = static_cast<float>(static_cast<double>(a.scale) * std::sqrt(total));
  const float ratio = a.max_norm / (norm + 1e-6f);
  *a.norm.as<float>() = norm;
  *a.coefficient.as<float>() = a.scale * (ratio >= 1.0f ? 1.0f : ratio);  // NaN stays NaN
  *a.nonfinite.as<int32_t>() = std::isfinite(norm) ? 0 : 1;
}

}  // namespace
}  // namespace cpu

void sum_squares(Stream& stream, const SumSquares& a) {
  check(is_float(a.x.dtype), "sum_squares: x is ", a.x.dtype, ", must be f32, bf16 or f16");
  check(a.first >= 0, "sum_squares: first is ", a.first, ", must not be negative");
  check(a.partials.dtype == DType::f32 && a.partials.size() == squares_intervals(a.first, a.x.size()),
        "sum_squares: partials is ", a.partials.dtype, " ", a.partials.shape, ", must be f32 with ",
        squares_intervals(a.first, a.x.size()), " elements for the range [", a.first, ", ",
        a.first + a.x.size(), ")");
  if (a.x.empty() || plans(stream, "sum_squares", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::sum_squares(stream, a);
  stream.run("sum_squares", [a] { visit_float(a.x.dtype, [&]<class T>() { cpu::squares<T>(a); }); });
}

void sum_partials(Stream& stream, const SumPartials& a) {
  const int64_t intervals = std::accumulate(a.units.begin(), a.units.end(), int64_t{0});
  check(a.partials.dtype == DType::f32 && a.partials.shape.rank() == 2 && a.partials.shape[1] == intervals,
        "sum_partials: partials is ", a.partials.dtype, " ", a.partials.shape, ", must be f32 (ranks, ",
        intervals, ") like the units");
  const int64_t groups = sums_of_partials(a.partials.shape[0], a.units);
  check(a.sums.dtype == DType::i32 && a.sums.shape == Shape({groups, 2}), "sum_partials: sums is ",
        a.sums.dtype, " ", a.sums.shape, ", must be i32 (", groups, ", 2)");
  if (groups == 0 || plans(stream, "sum_partials", a, a.partials)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::sum_partials(stream, a);
  stream.run("sum_partials", [a] { cpu::add_groups(a); });
}

void clip_coefficient(Stream& stream, const ClipCoefficient& a) {
  const auto check_one = [](const char* name, const Tensor& t, DType dtype) {
    check(t.dtype == dtype && t.size() == 1, "clip_coefficient: ", name, " is ", t.dtype, " ", t.shape,
          ", must be one ", dtype);
  };
  check_one("norm", a.norm, DType::f32);
  check_one("coefficient", a.coefficient, DType::f32);
  check_one("nonfinite", a.nonfinite, DType::i32);
  check(a.sums.dtype == DType::i32 && a.sums.shape.rank() == 2 && a.sums.shape[1] == 2,
        "clip_coefficient: sums is ", a.sums.dtype, " ", a.sums.shape, ", must be i32 (n, 2)");
  check(a.max_norm > 0.0f, "clip_coefficient: max_norm is ", a.max_norm, ", must be above 0");
  check(a.scale > 0.0f && std::isfinite(a.scale), "clip_coefficient: scale is ", a.scale,
        ", must be above 0 and finite");
  if (plans(stream, "clip_coefficient", a, a.sums)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::clip_coefficient(stream, a);
  stream.run("clip_coefficient", [a] { cpu::clip(a); });
}

double min_bytes(const SumSquares& a) { return bytes_of(a.x, a.partials); }
double min_bytes(const SumPartials& a) { return bytes_of(a.partials, a.sums); }
double min_bytes(const ClipCoefficient& a) { return static_cast<double>(a.sums.bytes() + 12); }
double flops(const SumSquares& a) { return 2.0 * static_cast<double>(a.x.size()); }
double flops(const SumPartials& a) { return static_cast<double>(a.partials.size()); }
double flops(const ClipCoefficient& a) { return static_cast<double>(a.sums.shape[0]); }

}  // namespace flatshard
