// Cases of RMSNorm, shared by tests and benchmark.

#include <cmath>
#include <utility>

#include "bench/case.h"
#include "kernels/rmsnorm.h"

namespace flatshard::bench {
namespace {

constexpr float kEps = 1e-5f;

void formula(Values& v, int64_t rows, int64_t C) {
  v["y"].assign(v["x"].size(), 0);
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < C; ++i) squares += v["x"][r * C + i] * v["x"][r * C + i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + kEps);
    for (int64_t i = 0; i < C; ++i) v["y"][r * C + i] = v["x"][r * C + i] * rstd * v["w"][i];
    v["rstd"].resize(rows);
    v["rstd"][r] = rstd;
  }
}

RmsNormForward forward_args(const Tensors& t) {
  return {.y = t["y"], .rstd = t["rstd"], .x = t["x"], .w = t["w"], .eps = kEps};
}

RmsNormBackward backward_args(const Tensors& t, bool accumulate_dx) {
  return {.dx = t["dx"],
          .dw = t.has("dw") ? t["dw"] : Tensor{},
          .dy = t["dy"],
          .x = t["x"],
          .w = t["w"],
          .rstd = t["rstd"],
          .accumulate_dx = accumulate_dx};
}

Case forward_case(DType dtype, int64_t rows, int64_t C, DType w) {
  return {.op = "rmsnorm_forward",
          .shape = str(rows, " x ", C, w == dtype ? "" : " w f32"),
          .dtype = dtype,
          .args = {{"x", dtype, {rows, C}, Role::input},
                   {"w", w, {C}, Role::input},
                   {"y", dtype, {rows, C}, Role::output},
                   {"rstd", DType::f32, {rows}, Role::output}},
          .run = [](Stream& s, Arena&, const Tensors& t) { rmsnorm_forward(s, forward_args(t)); },
          .min_bytes = [](const Tensors& t) { return min_bytes(forward_args(t)); },
          .flops = [](const Tensors& t) { return flops(forward_args(t)); },
          .reference = [=](Values& v) { formula(v, rows, C); }};
}

// Without the gradient of w if it is frozen.
Case backward_case(DType dtype, int64_t rows, int64_t C, DType w, bool accumulate_dx, bool frozen = false) {
  std::vector<Arg> args{{"x", dtype, {rows, C}, Role::input},
                        {"w", w, {C}, Role::input},
                        {"rstd", DType::f32, {rows}, Role::saved},
                        {"dy", dtype, {rows, C}, Role::input},
                        {"dx", dtype, {rows, C}, accumulate_dx ? Role::updated : Role::output}};
  if (!frozen) args.push_back({"dw", DType::f32, {C}, Role::updated});
  return {.op = "rmsnorm_backward",
          .shape = str(rows, " x ", C, accumulate_dx ? " dx+=" : "", frozen ? " frozen" : "",
                       w == dtype ? "" : " w f32"),
          .dtype = dtype,
          .args = std::move(args),
          .run = [=](Stream& s, Arena& scratch,
                     const Tensors& t) { rmsnorm_backward(s, scratch, backward_args(t, accumulate_dx)); },
          .prepare =
              [=](Stream& s, Arena& scratch, const Tensors& t) {
                const ArenaScope scope(scratch);
                const Tensor y = scratch.alloc(dtype, {rows, C});
                rmsnorm_forward(s, {.y = y, .rstd = t["rstd"], .x = t["x"], .w = t["w"], .eps = kEps});
              },
          .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, accumulate_dx)); },
          .flops = [=](const Tensors& t) { return flops(backward_args(t, accumulate_dx)); },
          .reference = [=](Values& v) { formula(v, rows, C); },
          .gradients = true};
}

}  // namespace

std::vector<Case> rmsnorm_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm) {
    const int64_t rows = scale == Scale::bench ? 16384 : 192;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      cases.push_back(forward_case(dtype, rows, 2048, dtype));
      cases.push_back(backward_case(dtype, rows, 2048, dtype, true));
      cases.push_back(backward_case(dtype, rows, 2048, dtype, true, true));
    }
    return cases;
  }
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      cases.push_back(forward_case(dtype, 5, 48, dtype));
      cases.push_back(backward_case(dtype, 5, 48, dtype, false));
    }
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, C] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 16}, {2, 40}, {67, 3}}) {
      cases.push_back(forward_case(dtype, rows, C, dtype));
      for (const bool frozen : {false, true})
        cases.push_back(backward_case(dtype, rows, C, dtype, rows % 2 == 0, frozen));
      if (dtype == DType::f32) continue;
      cases.push_back(forward_case(dtype, rows, C, DType::f32));
      cases.push_back(backward_case(dtype, rows, C, DType::f32, rows % 2 == 0, true));
    }
  return cases;
}

}  // namespace flatshard::bench
