// Cases of dropout, shared by tests and benchmark.

#include "bench/case.h"
#include "kernels/dropout.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

constexpr RandomStream kRandom(17, "layers.3.dropout", 9);

struct Sizes {
  int64_t n, first;
  float p;
};

Dropout arguments(const Tensor& out, const Tensor& in, const Sizes& m, bool accumulate = false) {
  return {.out = out, .in = in, .p = m.p, .random = kRandom, .first = m.first, .accumulate = accumulate};
}

void formula(Values& v, const Sizes& m) {
  v["y"].assign(static_cast<size_t>(m.n), 0);
  for (int64_t i = 0; i < m.n; ++i)
    if (kRandom.bits(m.first + i) / 256 * 0x1p-24 >= m.p) v["y"][i] = v["x"][i] / (1.0 - m.p);
}

// The input is columns of wider rows.
Case columns_case(DType dtype, int64_t rows, int64_t C) {
  constexpr int64_t kWider = 8;
  constexpr float kP = 0.3f;
  const auto of_columns = [=](const Tensors& t) {
    Dropout a = arguments(t["y"], packed_columns(t["x"], 0, {rows, C}), {rows * C, 48, kP});
    a.in_stride = C + kWider;
    return a;
  };
  return {.op = "dropout_forward",
          .shape = str(rows, " x ", C, " packed"),
          .dtype = dtype,
          .args = {{"x", dtype, {rows, C + kWider}, Role::input}, {"y", dtype, {rows, C}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { dropout_forward(s, of_columns(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(of_columns(t)); },
          .flops = [=](const Tensors& t) { return flops(of_columns(t)); },
          .reference =
              [=](Values& v) {
                std::vector<double> own;
                for (int64_t row = 0; row < rows; ++row)
                  for (int64_t i = 0; i < C; ++i) own.push_back(v["x"][row * (C + kWider) + i]);
                Values inner{{"x", own}};
                formula(inner, {rows * C, 48, kP});
                v["y"] = inner["y"];
              }};
}

Case forward_case(DType dtype, const Sizes& m) {
  return {
      .op = "dropout_forward",
      .shape = str(m.n, " from ", m.first, " p=", m.p),
      .dtype = dtype,
      .args = {{"x", dtype, {m.n}, Role::input}, {"y", dtype, {m.n}, Role::output}},
      .run = [=](Stream& s, Arena&, const Tensors& t) { dropout_forward(s, arguments(t["y"], t["x"], m)); },
      .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t["y"], t["x"], m)); },
      .flops = [=](const Tensors& t) { return flops(arguments(t["y"], t["x"], m)); },
      .reference = [=](Values& v) { formula(v, m); }};
}

Case backward_case(DType dtype, const Sizes& m, bool accumulate_dx) {
  const auto of = [=](const Tensors& t) { return arguments(t["dx"], t["dy"], m, accumulate_dx); };
  return {.op = "dropout_backward",
          .shape = str(m.n, " from ", m.first, " p=", m.p, accumulate_dx ? " dx+=" : ""),
          .dtype = dtype,
          .args = {{"x", dtype, {m.n}, Role::input},
                   {"dy", dtype, {m.n}, Role::input},
                   {"dx", dtype, {m.n}, accumulate_dx ? Role::updated : Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { dropout_backward(s, of(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(of(t)); },
          .flops = [=](const Tensors& t) { return flops(of(t)); },
          .reference = [=](Values& v) { formula(v, m); },
          .gradients = true};
}

}  // namespace

std::vector<Case> dropout_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Sizes m{scale == Scale::bench ? 1 << 25 : 1 << 17, 64, 0.1f};
      cases.push_back(forward_case(dtype, m));
      cases.push_back(backward_case(dtype, m, false));
    }
  if (scale == Scale::test)
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t C : {16, 21}) cases.push_back(columns_case(dtype, 5, C));
      for (const Sizes& m : {Sizes{1, 45, 0.3f},
                             {7, 45, 0.0f},
                             {16, 45, 0.3f},
                             {16, 48, 0.3f},
                             {203, 45, 0.3f},
                             {203, 48, 0.3f}}) {
        cases.push_back(forward_case(dtype, m));
        cases.push_back(backward_case(dtype, m, m.n % 2 == 0));
      }
    }
  return cases;
}

}  // namespace flatshard::bench
