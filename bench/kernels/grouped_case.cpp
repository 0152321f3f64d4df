#include "bench/kernels/grouped_case.h"

#include <algorithm>
#include <numeric>

#include "bench/kernels/gate_formula.h"
#include "kernels/grouped_product.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

int64_t total(const GroupedSetting& s) { return std::accumulate(s.rows.begin(), s.rows.end(), s.behind); }
bool is_dw(const GroupedSetting& s) { return s.kind == GroupedKind::weight_gradient; }
// Whether c has elements that keep their values, or adds to them.
bool is_updated(const GroupedSetting& s) { return is_dw(s) || s.accumulate || s.spare > 0; }

int64_t segments_of(const GroupedSetting& s) { return static_cast<int64_t>(s.rows.size()); }
// The shape of a matrix of each segment, and the elements from its beginning to that of the next.
Shape shape_of_matrix(const GroupedSetting& s) {
  if (is_dw(s)) return {s.M, s.N};
  return s.kind == GroupedKind::forward ? Shape{s.N, s.K} : Shape{s.K, s.N};
}
int64_t apart(const GroupedSetting& s) { return shape_of_matrix(s).size() + s.between; }
Shape shape_of_matrices(const GroupedSetting& s) {
  const Shape one = shape_of_matrix(s);
  return {segments_of(s), one[0], one[1]};
}
// As they are stored: with other elements between them.
Shape stored_matrices(const GroupedSetting& s) {
  return s.between > 0 ? Shape{segments_of(s) * apart(s)} : shape_of_matrices(s);
}
Tensor matrices_in(const GroupedSetting& s, Tensor stored) {
  stored.shape = shape_of_matrices(s);
  return stored;
}

// The columns behind the spare ones, and the elements between their rows.
Tensor columns_of(const GroupedSetting& s, const Tensor& of) {
  return s.spare == 0 ? of : packed_columns(of, s.spare, {of.shape[0], of.shape[1] - s.spare});
}
int64_t stride_of(const GroupedSetting& s, const Tensor& of) { return s.spare == 0 ? 0 : of.shape[1]; }

GroupedProduct arguments(const GroupedSetting& s, const Tensors& t, const Tensor& c) {
  GroupedProduct g{.c = is_dw(s) ? matrices_in(s, c) : columns_of(s, c),
                   .a = columns_of(s, t["a"]),
                   .b = is_dw(s) ? columns_of(s, t["b"]) : matrices_in(s, t["b"]),
                   .offsets = t["offsets"],
                   .rows = s.tokens > 0 ? t["rows"] : Tensor{},
                   .transpose_a = is_dw(s),
                   .transpose_b = s.kind == GroupedKind::forward,
                   .accumulate = s.accumulate,
                   .alpha = static_cast<float>(s.alpha),
                   .between = s.between > 0 ? apart(s) : 0,
                   .a_stride = stride_of(s, t["a"]),
                   .b_stride = is_dw(s) ? stride_of(s, t["b"]) : 0,
                   .c_stride = is_dw(s) ? 0 : stride_of(s, c)};
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

// Gathers any token for most rows, and none for the others, of which some are at the ends of segments.
double token_of(const GroupedSetting& s, int64_t row) {
  return row % 7 == 3 || row % 192 >= 149 ? -1 : static_cast<double>(row * 31 % s.tokens);
}

// Adds row i of segment e, which is row `of_x` of x.
void add_row(const GroupedSetting& s, const Values& v, int64_t e, int64_t i, int64_t of_x,
             std::vector<double>& c) {
  const std::vector<double>&a = v.at("a"), &b = v.at("b");
  // Element `column` of a row, of a matrix with spare columns.
  const auto at = [&](int64_t row, int64_t width, int64_t column) {
    return row * (s.spare + width) + s.spare + column;
  };
  if (is_dw(s)) {
    for (int64_t m = 0; m < s.M; ++m)
      for (int64_t n = 0; n < s.N; ++n)
        c[e * apart(s) + m * s.N + n] += s.alpha * a[at(i, s.M, m)] * b[at(of_x, s.N, n)];
    return;
  }
  const bool tb = s.kind == GroupedKind::forward;
  for (int64_t n = 0; n < s.N; ++n)
    for (int64_t k = 0; k < s.K; ++k)
      c[at(i, s.N, n)] += s.alpha * a[at(of_x, s.K, k)] * b[e * apart(s) + (tb ? n * s.K + k : k * s.N + n)];
}

// c before the product: what is written begins with zeros.
std::vector<double> initial_c(const GroupedSetting& s, const Values& v) {
  if (!is_updated(s)) return std::vector<double>(total(s) * s.N);
  std::vector<double> c = v.at("c");
  if (s.accumulate) return c;
  const int64_t rows = is_dw(s) ? segments_of(s) : total(s), width = is_dw(s) ? s.M * s.N : s.N;
  const int64_t first = is_dw(s) ? 0 : s.spare, stride = is_dw(s) ? apart(s) : s.spare + s.N;
  for (int64_t row = 0; row < rows; ++row) std::fill_n(c.begin() + row * stride + first, width, 0.0);
  return c;
}

void formula(const GroupedSetting& s, Values& v) {
  const int64_t segments = segments_of(s);
  std::vector<double> c = initial_c(s, v);
  int64_t row = 0;
  for (int64_t e = 0; e < segments; ++e)
    for (const int64_t end = row + s.rows[e]; row < end; ++row) {
      const int64_t of_x = s.tokens > 0 ? static_cast<int64_t>(v.at("rows")[row]) : row;
      if (of_x >= 0) add_row(s, v, e, row, of_x, c);
    }
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
             s.function == Gate::gelu ? " gelu" : "", s.tokens > 0 ? str(" of ", s.tokens, " rows") : "",
             s.between > 0 ? str(" with ", s.between, " between") : "",
             s.spare > 0 ? str(" behind ", s.spare, " columns") : "",
             s.alpha != 1 ? str(" by ", s.alpha) : "");
}

}  // namespace

Case grouped_case(const GroupedSetting& s) {
  const int64_t R = total(s), segments = segments_of(s);
  const Shape shape_of_c = is_dw(s) ? stored_matrices(s) : Shape{R, s.spare + s.N};
  const DType out = is_dw(s) ? s.out : s.dtype;
  const int64_t rows_of_x = s.tokens > 0 ? s.tokens : R;
  std::vector<Arg> args{
      {"a", s.dtype, is_dw(s) ? Shape{R, s.spare + s.M} : Shape{rows_of_x, s.spare + s.K}, Role::input},
      {"b", s.dtype, is_dw(s) ? Shape{rows_of_x, s.spare + s.N} : stored_matrices(s), Role::input},
      {"offsets", DType::i32, {segments + 1}, Role::constant, [rows = s.rows](int64_t i, double) {
         return static_cast<double>(std::accumulate(rows.begin(), rows.begin() + i, int64_t{0}));
       }}};
  if (s.tokens > 0)
    args.push_back(
        {"rows", DType::i32, {R}, Role::constant, [=](int64_t i, double) { return token_of(s, i); }});
  const bool keeps_c = s.end != GemmEnd::gradient;
  if (keeps_c) args.push_back({"c", out, shape_of_c, is_updated(s) ? Role::updated : Role::output});
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
