// Cases of RMSNorm, shared by tests and benchmark.

#include <cmath>
#include <utility>

#include "bench/case.h"
#include "kernels/rmsnorm.h"

namespace flatshard::bench {
namespace {

constexpr float kEps = 1e-5f;

enum class Style { llama, gemma };  // Gemma: xhat (1 + w), without rounding xhat

struct Sizes {
  int64_t rows, C;
  Style style = Style::llama;

  float offset() const { return style == Style::gemma ? 1.0f : 0.0f; }
};

void formula(Values& v, const Sizes& s) {
  const auto [rows, C, style] = s;
  v["y"].assign(v["x"].size(), 0);
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < C; ++i) squares += v["x"][r * C + i] * v["x"][r * C + i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + kEps);
    for (int64_t i = 0; i < C; ++i)
      v["y"][r * C + i] = v["x"][r * C + i] * rstd * (v["w"][i] + static_cast<double>(s.offset()));
    v["rstd"].resize(rows);
    v["rstd"][r] = rstd;
  }
}

RmsNormForward forward_args(const Tensors& t, const Sizes& s) {
  return {.y = t["y"],
          .rstd = t["rstd"],
          .x = t["x"],
          .w = t["w"],
          .eps = kEps,
          .offset = s.offset(),
          .round_xhat = s.style == Style::llama};
}

RmsNormBackward backward_args(const Tensors& t, const Sizes& s, bool accumulate_dx) {
  return {.dx = t["dx"],
          .dw = t.has("dw") ? t["dw"] : Tensor{},
          .dy = t["dy"],
          .x = t["x"],
          .w = t["w"],
          .rstd = t["rstd"],
          .offset = s.offset(),
          .round_xhat = s.style == Style::llama,
          .accumulate_dx = accumulate_dx};
}

Case forward_case(DType dtype, const Sizes& s, DType w) {
  const auto [rows, C, style] = s;
  return {
      .op = "rmsnorm_forward",
      .shape = str(rows, " x ", C, w == dtype ? "" : " w f32", style == Style::gemma ? " gemma" : ""),
      .dtype = dtype,
      .args = {{"x", dtype, {rows, C}, Role::input},
               {"w", w, {C}, Role::input},
               {"y", dtype, {rows, C}, Role::output},
               {"rstd", DType::f32, {rows}, Role::output}},
      .run = [=](Stream& stream, Arena&, const Tensors& t) { rmsnorm_forward(stream, forward_args(t, s)); },
      .min_bytes = [=](const Tensors& t) { return min_bytes(forward_args(t, s)); },
      .flops = [=](const Tensors& t) { return flops(forward_args(t, s)); },
      .reference = [=](Values& v) { formula(v, s); }};
}

// Without the gradient of w if it is frozen.
Case backward_case(DType dtype, const Sizes& s, DType w, bool accumulate_dx, bool frozen = false) {
  const auto [rows, C, style] = s;
  std::vector<Arg> args{{"x", dtype, {rows, C}, Role::input},
                        {"w", w, {C}, Role::input},
                        {"rstd", DType::f32, {rows}, Role::saved},
                        {"dy", dtype, {rows, C}, Role::input},
                        {"dx", dtype, {rows, C}, accumulate_dx ? Role::updated : Role::output}};
  if (!frozen) args.push_back({"dw", DType::f32, {C}, Role::updated});
  return {
      .op = "rmsnorm_backward",
      .shape = str(rows, " x ", C, accumulate_dx ? " dx+=" : "", frozen ? " frozen" : "",
                   w == dtype ? "" : " w f32", style == Style::gemma ? " gemma" : ""),
      .dtype = dtype,
      .args = std::move(args),
      .run = [=](Stream& stream, Arena& scratch,
                 const Tensors& t) { rmsnorm_backward(stream, scratch, backward_args(t, s, accumulate_dx)); },
      .prepare =
          [=](Stream& stream, Arena& scratch, const Tensors& t) {
            const ArenaScope scope(scratch);
            const Tensor y = scratch.alloc(dtype, {rows, C});
            rmsnorm_forward(stream, {.y = y, .rstd = t["rstd"], .x = t["x"], .w = t["w"], .eps = kEps});
          },
      .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, s, accumulate_dx)); },
      .flops = [=](const Tensors& t) { return flops(backward_args(t, s, accumulate_dx)); },
      .reference = [=](Values& v) { formula(v, s); },
      .gradients = true};
}

}  // namespace

std::vector<Case> rmsnorm_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm) {
    const int64_t rows = scale == Scale::bench ? 16384 : 192;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Sizes sizes{rows, 2048};
      cases.push_back(forward_case(dtype, sizes, dtype));
      cases.push_back(backward_case(dtype, sizes, dtype, true));
      cases.push_back(backward_case(dtype, sizes, dtype, true, true));
    }
    return cases;
  }
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Style style : {Style::llama, Style::gemma}) {
        cases.push_back(forward_case(dtype, {5, 48, style}, dtype));
        cases.push_back(backward_case(dtype, {5, 48, style}, dtype, false));
      }
    }
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& s : {Sizes{1, 1}, {3, 7}, {5, 16}, {2, 40}, {67, 3}, {3, 7, Style::gemma}}) {
      cases.push_back(forward_case(dtype, s, dtype));
      for (const bool frozen : {false, true})
        cases.push_back(backward_case(dtype, s, dtype, s.rows % 2 == 0, frozen));
      if (dtype == DType::f32) continue;
      cases.push_back(forward_case(dtype, s, DType::f32));
      cases.push_back(backward_case(dtype, s, DType::f32, s.rows % 2 == 0, true));
    }
  return cases;
}

}  // namespace flatshard::bench
