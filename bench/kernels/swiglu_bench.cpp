// Cases of SwiGLU and GEGLU, shared by tests and benchmark: gate and up as two tensors, and packed in one.

#include "bench/case.h"
#include "bench/kernels/gate_formula.h"
#include "kernels/swiglu.h"

namespace flatshard::bench {
namespace {

enum class Layout { separate, packed };

// gate and up, or their gradients, in the layout of a case.
struct Pair {
  Tensor gate, up;
  int64_t row_stride;
};

Pair pair_of(const Tensors& t, Layout layout, const std::string& prefix, int64_t rows, int64_t F) {
  if (layout == Layout::separate) return {t[prefix + "gate"], t[prefix + "up"], 0};
  const Tensor both = t[prefix + "gate_up"];
  return {packed_columns(both, 0, {rows, F}), packed_columns(both, F, {rows, F}), 2 * F};
}

void add_pair(std::vector<Arg>& args, Layout layout, const std::string& prefix, DType dtype, int64_t rows,
              int64_t F, Role role) {
  if (layout == Layout::packed) return args.push_back({prefix + "gate_up", dtype, {rows, 2 * F}, role});
  args.push_back({prefix + "gate", dtype, {rows, F}, role});
  args.push_back({prefix + "up", dtype, {rows, F}, role});
}

// y has `spare` columns after the first F.
void formula(Values& v, Layout layout, Gate function, int64_t rows, int64_t F, int64_t spare = 0) {
  const bool packed = layout == Layout::packed;
  const std::vector<double>&gate = v[packed ? "gate_up" : "gate"], &up = v[packed ? "gate_up" : "up"];
  const int64_t stride = packed ? 2 * F : F, up_begin = packed ? F : 0;
  std::vector<double>& y = v["y"];
  y.resize(static_cast<size_t>(rows * (F + spare)));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < F; ++i)
      y[r * (F + spare) + i] = gated(function, gate[r * stride + i]) * up[r * stride + up_begin + i];
}

std::string shape_name(int64_t rows, int64_t F, Layout layout, Gate function) {
  return str(rows, " x ", F, layout == Layout::packed ? " packed" : "",
             function == Gate::gelu ? " gelu" : "");
}

Case forward_case(DType dtype, int64_t rows, int64_t F, Layout layout, Gate function, int64_t spare = 0) {
  const auto arguments = [=](const Tensors& t) -> SwigluForward {
    const Pair in = pair_of(t, layout, "", rows, F);
    return {.y = packed_columns(t["y"], 0, {rows, F}),
            .gate = in.gate,
            .up = in.up,
            .row_stride = in.row_stride,
            .y_stride = F + spare,
            .function = function};
  };
  std::vector<Arg> args;
  add_pair(args, layout, "", dtype, rows, F, Role::input);
  args.push_back({"y", dtype, {rows, F + spare}, spare > 0 ? Role::updated : Role::output});
  return {.op = "swiglu_forward",
          .shape = shape_name(rows, F, layout, function) + (spare > 0 ? str(" + ", spare) : ""),
          .dtype = dtype,
          .args = args,
          .run = [=](Stream& s, Arena&, const Tensors& t) { swiglu_forward(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference = [=](Values& v) { formula(v, layout, function, rows, F, spare); }};
}

Case backward_case(DType dtype, int64_t rows, int64_t F, Layout layout, Gate function) {
  const auto arguments = [=](const Tensors& t) -> SwigluBackward {
    const Pair in = pair_of(t, layout, "", rows, F), out = pair_of(t, layout, "d", rows, F);
    return {.dgate = out.gate,
            .dup = out.up,
            .dy = t["dy"],
            .gate = in.gate,
            .up = in.up,
            .row_stride = in.row_stride,
            .function = function};
  };
  std::vector<Arg> args;
  add_pair(args, layout, "", dtype, rows, F, Role::input);
  args.push_back({"dy", dtype, {rows, F}, Role::input});
  add_pair(args, layout, "d", dtype, rows, F, Role::output);
  return {.op = "swiglu_backward",
          .shape = shape_name(rows, F, layout, function),
          .dtype = dtype,
          .args = args,
          .run = [=](Stream& s, Arena&, const Tensors& t) { swiglu_backward(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference = [=](Values& v) { formula(v, layout, function, rows, F); },
          .gradients = true};
}

}  // namespace

std::vector<Case> swiglu_cases(Scale scale) {
  std::vector<Case> cases;
  const auto append = [&](DType dtype, int64_t rows, int64_t F, Layout layout) {
    for (const Gate function : {Gate::silu, Gate::gelu}) {
      cases.push_back(forward_case(dtype, rows, F, layout, function));
      cases.push_back(backward_case(dtype, rows, F, layout, function));
    }
  };
  if (scale == Scale::bench || scale == Scale::vm) {
    for (const DType dtype : {DType::f32, DType::bf16})
      append(dtype, scale == Scale::bench ? 8192 : 32, 4096, Layout::packed);
    return cases;
  }
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16}) append(dtype, 3, 40, Layout::separate);
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    append(dtype, 0, 17, Layout::separate);
    append(dtype, 0, 16, Layout::packed);
    append(dtype, 1, 1, Layout::separate);
    append(dtype, 3, 17, Layout::separate);
    append(dtype, 5, 16, Layout::packed);
    append(dtype, 4, 35, Layout::packed);
    for (const int64_t F : {16, 35})
      cases.push_back(forward_case(dtype, 5, F, Layout::packed, Gate::silu, 8));
  }
  return cases;
}

}  // namespace flatshard::bench
