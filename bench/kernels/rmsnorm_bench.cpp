// Cases of RMSNorm, shared by tests and benchmark.

#include <cmath>
#include <utility>

#include "bench/case.h"
#include "kernels/packed.h"
#include "kernels/rmsnorm.h"

namespace flatshard::bench {
namespace {

constexpr float kEps = 1e-5f;

enum class Style { llama, gemma };  // Gemma: xhat (1 + w), without rounding xhat

struct Sizes {
  int64_t rows, C;
  Style style = Style::llama;
  int64_t spare = 0;  // columns of y after the first C

  float offset() const { return style == Style::gemma ? 1.0f : 0.0f; }
};

void formula(Values& v, const Sizes& s) {
  const auto [rows, C, style, spare] = s;
  v["y"].resize(static_cast<size_t>(rows * (C + spare)));
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int64_t i = 0; i < C; ++i) squares += v["x"][r * C + i] * v["x"][r * C + i];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + kEps);
    for (int64_t i = 0; i < C; ++i)
      v["y"][r * (C + spare) + i] = (v.contains("addend") ? v["addend"][r * C + i] : 0) +
                                    v["x"][r * C + i] * rstd * (v["w"][i] + static_cast<double>(s.offset()));
    v["rstd"].resize(rows);
    v["rstd"][r] = rstd;
  }
}

RmsNormForward forward_args(const Tensors& t, const Sizes& s) {
  return {.y = packed_columns(t["y"], 0, t["x"].shape),
          .rstd = t["rstd"],
          .x = t["x"],
          .w = t["w"],
          .addend = t.has("addend") ? t["addend"] : Tensor{},
          .eps = kEps,
          .offset = s.offset(),
          .round_xhat = s.style == Style::llama,
          .y_stride = s.C + s.spare};
}

struct BackwardStyle {
  bool accumulate_dx = true;
  bool frozen = false;     // omits the gradient of w
  bool accumulate = true;  // false: dw is overwritten
};

RmsNormBackward backward_args(const Tensors& t, const Sizes& s, const BackwardStyle& style) {
  return {.dx = t["dx"],
          .dw = t.has("dw") ? t["dw"] : Tensor{},
          .dy = t["dy"],
          .x = t["x"],
          .w = t["w"],
          .rstd = t["rstd"],
          .offset = s.offset(),
          .round_xhat = s.style == Style::llama,
          .accumulate_dx = style.accumulate_dx,
          .accumulate = style.accumulate};
}

Case forward_case(DType dtype, const Sizes& s, DType w, bool adds = false) {
  const auto [rows, C, style, spare] = s;
  std::vector<Arg> args{{"x", dtype, {rows, C}, Role::input},
                        {"w", w, {C}, Role::input},
                        {"y", dtype, {rows, C + spare}, spare > 0 ? Role::updated : Role::output},
                        {"rstd", DType::f32, {rows}, Role::output}};
  if (adds) args.push_back({"addend", dtype, {rows, C}, Role::input});
  return {
      .op = "rmsnorm_forward",
      .shape = str(rows, " x ", C, adds ? " + addend" : "", w == dtype ? "" : " w f32",
                   spare > 0 ? str(" + ", spare) : "", style == Style::gemma ? " gemma" : ""),
      .dtype = dtype,
      .args = std::move(args),
      .run = [=](Stream& stream, Arena&, const Tensors& t) { rmsnorm_forward(stream, forward_args(t, s)); },
      .min_bytes = [=](const Tensors& t) { return min_bytes(forward_args(t, s)); },
      .flops = [=](const Tensors& t) { return flops(forward_args(t, s)); },
      .reference = [=](Values& v) { formula(v, s); }};
}

Case backward_case(DType dtype, const Sizes& s, DType w, const BackwardStyle& how) {
  const auto [rows, C, style, spare] = s;
  std::vector<Arg> args{{"x", dtype, {rows, C}, Role::input},
                        {"w", w, {C}, Role::input},
                        {"rstd", DType::f32, {rows}, Role::saved},
                        {"dy", dtype, {rows, C}, Role::input},
                        {"dx", dtype, {rows, C}, how.accumulate_dx ? Role::updated : Role::output}};
  if (!how.frozen) args.push_back({"dw", DType::f32, {C}, how.accumulate ? Role::updated : Role::output});
  return {.op = "rmsnorm_backward",
          .shape = str(rows, " x ", C, how.accumulate_dx ? " dx+=" : "", how.frozen ? " frozen" : "",
                       how.accumulate ? "" : " dw=", w == dtype ? "" : " w f32",
                       style == Style::gemma ? " gemma" : ""),
          .dtype = dtype,
          .args = std::move(args),
          .run = [=](Stream& stream, Arena& scratch,
                     const Tensors& t) { rmsnorm_backward(stream, scratch, backward_args(t, s, how)); },
          .prepare =
              [=](Stream& stream, Arena& scratch, const Tensors& t) {
                const ArenaScope scope(scratch);
                const Tensor y = scratch.alloc(dtype, {rows, C});
                rmsnorm_forward(stream, {.y = y, .rstd = t["rstd"], .x = t["x"], .w = t["w"], .eps = kEps});
              },
          .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, s, how)); },
          .flops = [=](const Tensors& t) { return flops(backward_args(t, s, how)); },
          .reference = [=](Values& v) { formula(v, s); },
          .gradients = true};
}

}  // namespace

std::vector<Case> rmsnorm_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm) {
    // Rows of the residual stream, and heads of Qwen3.
    const int64_t rows = scale == Scale::bench ? 16384 : 128;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Sizes& s : {Sizes{rows, 1536}, {rows, 2048}, {rows, 4096}, {16 * rows, 128}}) {
        cases.push_back(forward_case(dtype, s, dtype));
        cases.push_back(backward_case(dtype, s, dtype, {.accumulate_dx = s.C > 128}));
      }
      cases.push_back(forward_case(dtype, {rows, 4096}, dtype, true));
      cases.push_back(backward_case(dtype, {rows, 2048}, dtype, {.frozen = true}));
      if (scale == Scale::bench) continue;
      for (const int64_t C : {6144, 16416}) {  // two packs per thread; several packs
        for (const bool adds : {false, true}) cases.push_back(forward_case(dtype, {32, C}, dtype, adds));
        cases.push_back(backward_case(dtype, {32, C}, dtype, {}));
      }
    }
    return cases;
  }
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Style style : {Style::llama, Style::gemma}) {
        cases.push_back(forward_case(dtype, {5, 48, style}, dtype));
        cases.push_back(backward_case(dtype, {5, 48, style}, dtype, {.accumulate_dx = false}));
      }
    }
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t C : {7, 48}) cases.push_back(forward_case(dtype, {5, C, Style::llama, 16}, dtype));
    for (const Sizes& s : {Sizes{0, 7}, {1, 1}, {3, 7}, {5, 16}, {2, 40}, {67, 3}, {3, 7, Style::gemma}}) {
      for (const bool adds : {false, true}) cases.push_back(forward_case(dtype, s, dtype, adds));
      const bool adds = s.rows % 2 == 0;
      for (const BackwardStyle& how : {BackwardStyle{.accumulate_dx = adds},
                                       {.accumulate_dx = adds, .frozen = true},
                                       {.accumulate_dx = adds, .accumulate = false}})
        cases.push_back(backward_case(dtype, s, dtype, how));
      if (dtype == DType::f32) continue;
      cases.push_back(forward_case(dtype, s, DType::f32));
      cases.push_back(backward_case(dtype, s, DType::f32, {.accumulate_dx = adds, .frozen = true}));
    }
  }
  return cases;
}

}  // namespace flatshard::bench
