#include "bench/kernels/grouped_case.h"

#include <numeric>

#include "bench/kernels/gate_formula.h"
#include "kernels/grouped_product.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

int64_t total(const GroupedSetting& s) { return std::accumulate(s.rows.begin(), s.rows.end(), s.behind); }
bool is_dw(const GroupedSetting& s) { return s.kind == GroupedKind::weight_gradient; }

GroupedProduct arguments(const GroupedSetting& s, const Tensors& t, const Tensor& c) {
  GroupedProduct g{.c = c,
                   .a = t["a"],
                   .b = t["b"],
                   .offsets = t["offsets"],
                   .transpose_a = is_dw(s),
                   .transpose_b = s.kind == GroupedKind::forward,
                   .accumulate = s.accumulate};
  const auto half = [&](const Tensor& both, int64_t which) {
    const int64_t F = both.shape[1] / 2;
    return packed_columns(both, which * F, {both.shape[0], F});
  };
  if (s.end == GemmEnd::gated)
    g.end = SwigluForward{
        .y = t["y"], .gate = half(c, 0), .up = half(c, 1), .row_stride = s.N, .function = s.function};
  if (s.end == GemmEnd::gradient)
    g.end = SwigluBackward{.dgate = half(t["dgate_up"], 0),
                           .dup = half(t["dgate_up"], 1),
                           .dy = c,
                           .gate = half(t["gate_up"], 0),
                           .up = half(t["gate_up"], 1),
                           .row_stride = 2 * s.N,
                           .function = s.function};
  return g;
}

// The sums of row i of segment e.
void add_row(const GroupedSetting& s, const Values& v, int64_t e, int64_t i, std::vector<double>& c) {
  const std::vector<double>&a = v.at("a"), &b = v.at("b");
  if (is_dw(s)) {
    for (int64_t m = 0; m < s.M; ++m)
      for (int64_t n = 0; n < s.N; ++n) c[(e * s.M + m) * s.N + n] += a[i * s.M + m] * b[i * s.N + n];
    return;
  }
  const bool tb = s.kind == GroupedKind::forward;
  for (int64_t n = 0; n < s.N; ++n)
    for (int64_t k = 0; k < s.K; ++k)
      c[i * s.N + n] += a[i * s.K + k] * b[e * s.N * s.K + (tb ? n * s.K + k : k * s.N + n)];
}

void formula(const GroupedSetting& s, Values& v) {
  const auto segments = static_cast<int64_t>(s.rows.size());
  std::vector<double> c(is_dw(s) ? segments * s.M * s.N : total(s) * s.N);
  if (s.accumulate) c = v["c"];
  int64_t row = 0;
  for (int64_t e = 0; e < segments; ++e)
    for (const int64_t end = row + s.rows[e]; row < end; ++row) add_row(s, v, e, row, c);
  if (s.end == GemmEnd::gated) v["y"] = gated_units(s.function, c, s.N / 2);
  if (s.end == GemmEnd::gradient) {
    v["dgate_up"] = gated_gradients(s.function, c, v["gate_up"], s.N);
    return;
  }
  v["c"] = std::move(c);
}

std::string name_of(const GroupedSetting& s) {
  std::string rows;
  for (const int64_t n : s.rows) rows += str(rows.empty() ? "" : "+", n);
  const char* const kind = is_dw(s) ? " dw" : s.kind == GroupedKind::forward ? " y" : " dx";
  return str(rows, s.behind > 0 ? str(" and ", s.behind) : "", kind, " x ", s.N, " x ", is_dw(s) ? s.M : s.K,
             s.accumulate ? " c+=" : "", is_dw(s) && s.out != s.dtype ? " into f32" : "",
             s.end == GemmEnd::gated      ? " gated"
             : s.end == GemmEnd::gradient ? " to gradients"
                                          : "",
             s.function == Gate::gelu ? " gelu" : "");
}

}  // namespace

Case grouped_case(const GroupedSetting& s) {
  const int64_t R = total(s), segments = static_cast<int64_t>(s.rows.size());
  const Shape shape_of_c = is_dw(s) ? Shape{segments, s.M, s.N} : Shape{R, s.N};
  const DType out = is_dw(s) ? s.out : s.dtype;
  std::vector<Arg> args{
      {"a", s.dtype, {R, is_dw(s) ? s.M : s.K}, Role::input},
      {"b", s.dtype,
       is_dw(s)                         ? Shape{R, s.N}
       : s.kind == GroupedKind::forward ? Shape{segments, s.N, s.K}
                                        : Shape{segments, s.K, s.N},
       Role::input},
      {"offsets", DType::i32, {segments + 1}, Role::constant, [rows = s.rows](int64_t i, double) {
         return static_cast<double>(std::accumulate(rows.begin(), rows.begin() + i, int64_t{0}));
       }}};
  const bool keeps_c = s.end != GemmEnd::gradient;
  if (keeps_c) args.push_back({"c", out, shape_of_c, s.accumulate ? Role::updated : Role::output});
  if (s.end == GemmEnd::gated) args.push_back({"y", s.dtype, {R, s.N / 2}, Role::output});
  if (!keeps_c) {
    args.push_back({"gate_up", s.dtype, {R, 2 * s.N}, Role::input});
    args.push_back({"dgate_up", s.dtype, {R, 2 * s.N}, Role::output});
  }
  const auto arguments_of = [=](const Tensors& t) {
    return arguments(s, t, keeps_c ? t["c"] : Tensor{nullptr, out, shape_of_c, t["a"].device});
  };
  return {.op = "grouped_product",
          .shape = name_of(s),
          .dtype = s.dtype,
          .args = std::move(args),
          .run =
              [=](Stream& stream, Arena& scratch, const Tensors& t) {
                const ArenaScope scope(scratch);
                const Tensor c = keeps_c ? t["c"] : scratch.alloc(out, shape_of_c);
                grouped_product(stream, scratch, arguments(s, t, c));
              },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments_of(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments_of(t)); },
          .reference = [=](Values& v) { formula(s, v); },
          .matrix_bound = true};
}

}  // namespace flatshard::bench
