// Cases of parameter initialization, shared by tests and benchmark.

#include <cmath>
#include <numbers>

#include "bench/case.h"
#include "kernels/init.h"

namespace flatshard::bench {
namespace {

constexpr RandomStream kRandom(17, "layers.3.mlp.up.weight");

InitParam init_args(const Tensors& t, Init init, int64_t first) {
  return {.y = t["y"], .init = init, .random = kRandom, .first = first};
}

double exact_value(Init init, int64_t i) {
  if (init.kind == Init::Kind::constant) return init.value;
  if (init.kind == Init::Kind::uniform) return init.value * (2.0 * (kRandom.bits(i) >> 8) * 0x1p-24 - 1.0);
  const double u = (kRandom.bits(i & ~int64_t{1}) + 0.5) * 0x1p-32, v = kRandom.bits(i | 1) * 0x1p-32;
  const double angle = 2 * std::numbers::pi * v;
  return init.value * std::sqrt(-2 * std::log(u)) * (i & 1 ? std::sin(angle) : std::cos(angle));
}

void formula(Values& v, Init init, int64_t n, int64_t first) {
  v["y"].resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v["y"][i] = exact_value(init, first + i);
}

const char* name_of(Init init) {
  return init.kind == Init::Kind::constant ? "constant"
         : init.kind == Init::Kind::normal ? "normal"
                                           : "uniform";
}

Case init_case(DType dtype, Init init, int64_t n, int64_t first) {
  return {.op = "init_param",
          .shape = str(name_of(init), ' ', n, " from ", first),
          .dtype = dtype,
          .args = {{"y", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { init_param(s, init_args(t, init, first)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(init_args(t, init, first)); },
          .flops = [=](const Tensors& t) { return flops(init_args(t, init, first)); },
          .reference = [=](Values& v) { formula(v, init, n, first); }};
}

}  // namespace

std::vector<Case> init_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const int64_t n = scale == Scale::bench ? 1 << 24 : 1 << 17;
      cases.push_back(init_case(dtype, Init::normal(0.02f), n, 0));
      cases.push_back(init_case(dtype, Init::uniform(0.02f), n, 0));
    }
  if (scale == Scale::test)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const Init init : {Init::constant(-0.75f), Init::normal(1.5f), Init::uniform(2.0f)}) {
        cases.push_back(init_case(dtype, init, 1, 0));
        cases.push_back(init_case(dtype, init, 19, 45));
        cases.push_back(init_case(dtype, init, 1201, (int64_t{1} << 33) - 3));
      }
  return cases;
}

}  // namespace flatshard::bench
