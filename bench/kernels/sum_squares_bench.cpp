// Cases of the gradient norm, shared by tests and benchmark.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/case.h"
#include "kernels/sum_squares.h"

namespace flatshard::bench {
namespace {

constexpr float kMaxNorm = 2.5f;
constexpr float kScale = 0.5f;
constexpr int64_t kLargeModel = 1 << 21;  // number of partials for 8.6 billion parameters

SumSquares squares_args(const Tensors& t, int64_t first) {
  return {.partials = t["partials"], .x = t["x"], .first = first};
}

// The partials of `ranks` ranks. Each rank has units with these numbers of intervals.
struct Parts {
  int64_t ranks;
  std::vector<int64_t> units;

  int64_t per_rank() const { return std::accumulate(units.begin(), units.end(), int64_t{0}); }
};

SumPartials sums_args(const Tensors& t, const Parts& parts, const Tensor& sums) {
  return {.sums = sums, .partials = t["partials"], .units = parts.units};
}

ClipCoefficient clip_args(const Tensors& t, const Tensor& sums) {
  return {.norm = t["norm"],
          .coefficient = t["coefficient"],
          .nonfinite = t["nonfinite"],
          .sums = sums,
          .max_norm = kMaxNorm,
          .scale = kScale};
}

void squares_formula(Values& v, int64_t n, int64_t first) {
  v["partials"].assign(static_cast<size_t>(squares_intervals(first, n)), 0);
  for (int64_t i = 0; i < n; ++i)
    v["partials"][(first + i) / kSquaresInterval - first / kSquaresInterval] += v["x"][i] * v["x"][i];
}

void clip_formula(Values& v) {
  double total = 0;
  for (const double partial : v["partials"]) total += partial;
  const double norm = kScale * std::sqrt(total);
  v["norm"] = {norm};
  v["coefficient"] = {kScale * std::min(1.0, kMaxNorm / (norm + 1e-6))};
  v["nonfinite"] = {0};
}

Case squares_case(DType dtype, int64_t n, int64_t first) {
  return {.op = "sum_squares",
          .shape = first == 0 ? str(n) : str(n, " from ", first),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input},
                   {"partials", DType::f32, {squares_intervals(first, n)}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { sum_squares(s, squares_args(t, first)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(squares_args(t, first)); },
          .flops = [=](const Tensors& t) { return flops(squares_args(t, first)); },
          .reference = [=](Values& v) { squares_formula(v, n, first); }};
}

// Both steps from partials to the coefficient. `size` is the value of a partial; it puts the norm below or
// above the clip threshold.
Case clip_case(DType dtype, const Parts& parts, double size) {
  return {
      .op = "clip_coefficient",
      .shape = str(parts.ranks, " x ", parts.per_rank(), " partials of ", size,
                   parts.units.size() > 1 ? str(" in ", parts.units.size(), " units") : ""),
      .dtype = dtype,
      .args = {{"partials",
                DType::f32,
                {parts.ranks, parts.per_rank()},
                Role::input,
                [=](int64_t, double unit) { return size * (0.5 + unit); }},
               {"norm", DType::f32, {1}, Role::output},
               {"coefficient", DType::f32, {1}, Role::output},
               {"nonfinite", DType::i32, {1}, Role::output}},
      .run =
          [=](Stream& s, Arena& scratch, const Tensors& t) {
            const ArenaScope scope(scratch);
            const Tensor sums = scratch.alloc(DType::i32, {sums_of_partials(parts.ranks, parts.units), 2});
            sum_partials(s, sums_args(t, parts, sums));
            clip_coefficient(s, clip_args(t, sums));
          },
      .min_bytes = [=](const Tensors& t) { return min_bytes(sums_args(t, parts, {})); },
      .flops = [=](const Tensors& t) { return flops(sums_args(t, parts, {})); },
      .reference = clip_formula};
}

}  // namespace

std::vector<Case> sum_squares_cases(Scale scale) {
  if (scale == Scale::bench)
    return {squares_case(DType::f32, 1 << 26, 0), squares_case(DType::bf16, 1 << 26, 0),
            clip_case(DType::f32, {1, {kLargeModel}}, 1.0)};
  if (scale == Scale::vm)
    return {squares_case(DType::f32, 1 << 18, 0), squares_case(DType::bf16, 1 << 18, 0),
            clip_case(DType::f32, {1, {kLargeModel}}, 1.0)};
  std::vector<Case> cases;
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      cases.push_back(squares_case(dtype, 700, kSquaresInterval - 301));
      cases.push_back(clip_case(dtype, {1, {2}}, 1.0));
    }
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t n : {1, 7, 16, 300, 4099}) cases.push_back(squares_case(dtype, n, 0));
    cases.push_back(squares_case(dtype, kSquaresInterval + 77, kSquaresInterval - 40));
  }
  cases.push_back(squares_case(DType::bf16, 2 * kSquaresInterval + 1, 0));
  for (const double size : {0.01, 3.0}) {
    for (const Parts& parts : {Parts{1, {1}}, {1, {133}}, {2, {3, 0, 4100}}, {8, {1, 515, 2}}})
      cases.push_back(clip_case(DType::f32, parts, size));
  }
  const std::vector<int64_t> many(300, 1);  // more units than a launch can take
  cases.push_back(clip_case(DType::f32, {2, many}, 1.0));
  return cases;
}

}  // namespace flatshard::bench
