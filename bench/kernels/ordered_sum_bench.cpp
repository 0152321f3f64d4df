// Cases of the ordered sum over lanes, shared by tests and benchmark.

#include "bench/case.h"
#include "kernels/ordered_sum.h"

namespace flatshard::bench {
namespace {

OrderedSum sum_args(const Tensors& t, bool accumulate) {
  return {.y = t["y"], .lanes = t["lanes"], .accumulate = accumulate};
}

void formula(Values& v, int64_t L, int64_t n, bool accumulate) {
  if (!accumulate) v["y"].assign(static_cast<size_t>(n), 0);
  for (int64_t lane = 0; lane < L; ++lane)
    for (int64_t i = 0; i < n; ++i) v["y"][i] += v["lanes"][lane * n + i];
}

Case sum_case(DType dtype, int64_t L, int64_t n, bool accumulate) {
  return {.op = "ordered_sum",
          .shape = str(L, " x ", n, accumulate ? " y+=" : ""),
          .dtype = dtype,
          .args = {{"lanes", dtype, {L, n}, Role::input},
                   {"y", DType::f32, {n}, accumulate ? Role::updated : Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { ordered_sum(s, sum_args(t, accumulate)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(sum_args(t, accumulate)); },
          .flops = [=](const Tensors& t) { return flops(sum_args(t, accumulate)); },
          .reference = [=](Values& v) { formula(v, L, n, accumulate); }};
}

}  // namespace

std::vector<Case> ordered_sum_cases(Scale scale) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (scale == Scale::golden) cases.push_back(sum_case(dtype, 6, 40, false));
    if (scale == Scale::bench || scale == Scale::vm) {
      const int64_t n = scale == Scale::bench ? 1 << 23 : 1 << 15;
      cases.push_back(sum_case(dtype, 4, n, false));
      cases.push_back(sum_case(dtype, 1, 2 * n, true));
    }
    if (scale == Scale::vm) cases.push_back(sum_case(dtype, 11, 1 << 14, false));
  }
  if (scale != Scale::test) return cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [L, n] : {std::pair<int64_t, int64_t>{1, 5},
                               {2, 16},
                               {3, 7},
                               {4, 40},
                               {7, 19},
                               {8, 33},
                               {16, 12},
                               {23, 9},
                               {32, 5},
                               {64, 6},
                               {93, 8},
                               {127, 4},
                               {150, 5}}) {
      cases.push_back(sum_case(dtype, L, n, false));
      cases.push_back(sum_case(dtype, L, n, true));
    }
  return cases;
}

}  // namespace flatshard::bench
