// Cases of LayerNorm, shared by tests and benchmark.

#include <cmath>
#include <utility>

#include "bench/case.h"
#include "kernels/layernorm.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

constexpr float kEps = 1e-5f;

// y has `spare` columns after the first C.
void formula(Values& v, int64_t rows, int64_t C, int64_t spare = 0) {
  const std::vector<double>&x = v["x"], &w = v["w"], &b = v["b"];
  std::vector<double>&y = v["y"], &means = v["mean"], &rstds = v["rstd"];
  y.resize(static_cast<size_t>(rows * (C + spare)));
  means.assign(rows, 0);
  rstds.assign(rows, 0);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < C; ++i) sum += x[r * C + i];
    const double mean = sum / static_cast<double>(C);
    for (int64_t i = 0; i < C; ++i) squares += (x[r * C + i] - mean) * (x[r * C + i] - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(C) + kEps);
    for (int64_t i = 0; i < C; ++i) y[r * (C + spare) + i] = (x[r * C + i] - mean) * rstd * w[i] + b[i];
    means[r] = mean;
    rstds[r] = rstd;
  }
}

LayerNormForward forward_args(const Tensors& t, const Tensor& y) {
  return {.y = packed_columns(y, 0, t["x"].shape),
          .mean = t["mean"],
          .rstd = t["rstd"],
          .x = t["x"],
          .w = t["w"],
          .b = t["b"],
          .eps = kEps,
          .y_stride = y.shape[1]};
}

// The gradients of parameters to compute, and whether they accumulate.
struct Wanted {
  bool dw = true, db = true;
  bool accumulate = true;
};

LayerNormBackward backward_args(const Tensors& t, bool accumulate_dx, const Wanted& wanted) {
  return {.dx = t["dx"],
          .dw = t.has("dw") ? t["dw"] : Tensor{},
          .db = t.has("db") ? t["db"] : Tensor{},
          .dy = t["dy"],
          .x = t["x"],
          .w = t["w"],
          .mean = t["mean"],
          .rstd = t["rstd"],
          .accumulate_dx = accumulate_dx,
          .accumulate = wanted.accumulate};
}

Case forward_case(DType dtype, int64_t rows, int64_t C, DType w, int64_t spare = 0) {
  return {.op = "layernorm_forward",
          .shape = str(rows, " x ", C, w == dtype ? "" : " w f32", spare > 0 ? str(" + ", spare) : ""),
          .dtype = dtype,
          .args = {{"x", dtype, {rows, C}, Role::input},
                   {"w", w, {C}, Role::input},
                   {"b", w, {C}, Role::input},
                   {"y", dtype, {rows, C + spare}, spare > 0 ? Role::updated : Role::output},
                   {"mean", DType::f32, {rows}, Role::output},
                   {"rstd", DType::f32, {rows}, Role::output}},
          .run = [](Stream& s, Arena&, const Tensors& t) { layernorm_forward(s, forward_args(t, t["y"])); },
          .min_bytes = [](const Tensors& t) { return min_bytes(forward_args(t, t["y"])); },
          .flops = [](const Tensors& t) { return flops(forward_args(t, t["y"])); },
          .reference = [=](Values& v) { formula(v, rows, C, spare); }};
}

Case backward_case(DType dtype, int64_t rows, int64_t C, DType w, bool accumulate_dx,
                   const Wanted& wanted = {}) {
  std::vector<Arg> args{{"x", dtype, {rows, C}, Role::input},
                        {"w", w, {C}, Role::input},
                        {"b", w, {C}, Role::input},
                        {"mean", DType::f32, {rows}, Role::saved},
                        {"rstd", DType::f32, {rows}, Role::saved},
                        {"dy", dtype, {rows, C}, Role::input},
                        {"dx", dtype, {rows, C}, accumulate_dx ? Role::updated : Role::output}};
  const Role sums = wanted.accumulate ? Role::updated : Role::output;
  if (wanted.dw) args.push_back({"dw", DType::f32, {C}, sums});
  if (wanted.db) args.push_back({"db", DType::f32, {C}, sums});
  return {
      .op = "layernorm_backward",
      .shape = str(rows, " x ", C, accumulate_dx ? " dx+=" : "", wanted.dw ? "" : " w frozen",
                   wanted.db ? "" : " b frozen", wanted.accumulate ? "" : " dw=", w == dtype ? "" : " w f32"),
      .dtype = dtype,
      .args = std::move(args),
      .run =
          [=](Stream& s, Arena& scratch, const Tensors& t) {
            layernorm_backward(s, scratch, backward_args(t, accumulate_dx, wanted));
          },
      .prepare =
          [=](Stream& s, Arena& scratch, const Tensors& t) {
            const ArenaScope scope(scratch);
            layernorm_forward(s, forward_args(t, scratch.alloc(dtype, {rows, C})));
          },
      .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, accumulate_dx, wanted)); },
      .flops = [=](const Tensors& t) { return flops(backward_args(t, accumulate_dx, wanted)); },
      .reference = [=](Values& v) { formula(v, rows, C); },
      .gradients = true};
}

}  // namespace

std::vector<Case> layernorm_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm) {
    const int64_t rows = scale == Scale::bench ? 16384 : 128;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const auto& [n, C] :
           {std::pair<int64_t, int64_t>{rows, 1536}, {rows, 2048}, {rows, 4096}, {16 * rows, 128}}) {
        cases.push_back(forward_case(dtype, n, C, dtype));
        cases.push_back(backward_case(dtype, n, C, dtype, true));
      }
      cases.push_back(backward_case(dtype, rows, 2048, dtype, true, {.dw = false, .db = false}));
      if (scale == Scale::bench) continue;
      for (const int64_t C : {6144, 16416}) {  // two packs per thread; several packs
        cases.push_back(forward_case(dtype, 32, C, dtype));
        cases.push_back(backward_case(dtype, 32, C, dtype, true));
      }
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
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const int64_t C : {7, 48}) cases.push_back(forward_case(dtype, 5, C, dtype, 16));
    for (const auto& [rows, C] :
         {std::pair<int64_t, int64_t>{0, 7}, {1, 1}, {3, 7}, {5, 16}, {2, 83}, {67, 3}}) {
      cases.push_back(forward_case(dtype, rows, C, dtype));
      for (const Wanted& wanted :
           {Wanted{}, {.accumulate = false}, {.db = false}, {.dw = false}, {.dw = false, .db = false}})
        cases.push_back(backward_case(dtype, rows, C, dtype, rows % 2 == 0, wanted));
      if (dtype == DType::f32) continue;
      cases.push_back(forward_case(dtype, rows, C, DType::f32));
      cases.push_back(backward_case(dtype, rows, C, DType::f32, rows % 2 == 0, {.dw = false, .db = false}));
    }
  }
  return cases;
}

}  // namespace flatshard::bench
