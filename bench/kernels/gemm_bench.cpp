// Cases of the matrix product and of the bias gradient. Only values are checked, since gradients of a product
// are products.

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "bench/case.h"
#include "bench/kernels/gate_formula.h"
#include "bench/kernels/gemm_setting.h"
#include "bench/kernels/kernels_of.h"
#include "bench/kernels/linear_layers.h"
#include "kernels/gemm.h"
#include "kernels/op.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

constexpr int64_t kBefore = 3, kBeside = 5;  // columns before a packed matrix, and around it
constexpr int64_t kAligned = 8;

// The first column of a matrix in its rows, and the columns of rows with a matrix of `columns`.
int64_t before(const GemmSetting& p) { return p.with.packed ? kBefore : 0; }
int64_t width(const GemmSetting& p, int64_t columns) {
  if (p.with.aligned) return (columns + kAligned - 1) / kAligned * kAligned;
  return columns + (p.with.packed ? kBeside : 0);
}
bool in_wider_rows(const GemmSetting& p) { return p.with.packed || p.with.aligned; }

Shape shape_of_a(const GemmSetting& p) { return p.with.transpose_a ? Shape{p.K, p.M} : Shape{p.M, p.K}; }
Shape shape_of_b(const GemmSetting& p) { return p.with.transpose_b ? Shape{p.N, p.K} : Shape{p.K, p.N}; }
Shape shape_of_c(const GemmSetting& p) { return {p.M, p.N}; }

bool ends_with(const GemmSetting& p, GemmEnd end) { return p.with.end == end; }

int64_t rotated_heads(const GemmSetting& p) { return std::max<int64_t>(1, p.N / p.with.head - 1); }

// Any positions, and cosines and sines of angles that fall from pair to pair.
constexpr int64_t kPositions = 40;
double position_of(int64_t row) { return static_cast<double>(row * 7 % kPositions); }
double turn_of(int64_t position, int64_t column, int64_t half) {
  const double angle = static_cast<double>(position) / static_cast<double>(1 + column % half);
  return column < half ? std::cos(angle) : std::sin(angle);
}

ProductEnd end_of(const GemmSetting& p, const Tensors& t, const Tensor& c) {
  const auto half = [&](const Tensor& both, int64_t which) {
    const int64_t F = both.shape[1] / 2;
    return packed_columns(both, which * F, {p.M, F});
  };
  if (ends_with(p, GemmEnd::gated))
    return SwigluForward{
        .y = t["y"], .gate = half(c, 0), .up = half(c, 1), .row_stride = p.N, .function = p.with.function};
  if (ends_with(p, GemmEnd::gradient))
    return SwigluBackward{.dgate = half(t["dgate_up"], 0),
                          .dup = half(t["dgate_up"], 1),
                          .dy = c,
                          .gate = half(t["gate_up"], 0),
                          .up = half(t["gate_up"], 1),
                          .row_stride = 2 * p.N,
                          .function = p.with.function};
  if (ends_with(p, GemmEnd::rotated)) {
    const Tensor heads = packed_columns(c, 0, {p.M, rotated_heads(p), p.with.head});
    return RopeForward{.y = heads,
                       .x = heads,
                       .positions = t["positions"],
                       .table = t["table"],
                       .y_stride = p.N,
                       .x_stride = p.N};
  }
  return {};
}

// `unwritten` is c where only its end is an output.
Gemm arguments(const GemmSetting& p, const Tensors& t, Tensor unwritten = {}) {
  if (unwritten.empty()) unwritten = {nullptr, p.out, shape_of_c(p), t["a"].device};
  const auto stride = [&](const char* name) { return in_wider_rows(p) ? t[name].shape[1] : 0; };
  const auto columns = [&](const char* name, const Shape& shape) {
    return in_wider_rows(p) ? packed_columns(t[name], before(p), shape) : t[name];
  };
  const Tensor c = ends_with(p, GemmEnd::gradient) ? unwritten : columns("c", shape_of_c(p));
  return {.c = c,
          .a = columns("a", shape_of_a(p)),
          .b = columns("b", shape_of_b(p)),
          .bias = p.with.bias ? t["bias"] : Tensor{},
          .addend = p.with.addend ? columns("addend", shape_of_c(p)) : Tensor{},
          .transpose_a = p.with.transpose_a,
          .transpose_b = p.with.transpose_b,
          .accumulate = p.with.accumulate,
          .alpha = p.with.alpha,
          .a_stride = stride("a"),
          .b_stride = stride("b"),
          .c_stride = ends_with(p, GemmEnd::gradient) ? 0 : stride("c"),
          .end = end_of(p, t, c)};
}

void rotate(const GemmSetting& p, std::vector<double>& c) {
  const int64_t half = p.with.head / 2;
  for (int64_t i = 0; i < p.M; ++i)
    for (int64_t head = 0; head < rotated_heads(p); ++head)
      for (int64_t pair = 0; pair < half; ++pair) {
        double &a = c[i * p.N + head * p.with.head + pair],
               &b = c[i * p.N + head * p.with.head + pair + half];
        const auto position = static_cast<int64_t>(position_of(i));
        const double cosine = turn_of(position, pair, half), sine = turn_of(position, half + pair, half);
        const double first = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = first;
      }
}

void formula(const GemmSetting& p, Values& v) {
  const auto at = [&](int64_t row, int64_t column, int64_t columns) {
    return row * width(p, columns) + before(p) + column;
  };
  std::vector<double> c = p.with.accumulate || in_wider_rows(p) ? v["c"] : std::vector<double>(p.M * p.N);
  for (int64_t i = 0; i < p.M; ++i)
    for (int64_t j = 0; j < p.N; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < p.K; ++k)
        sum += v["a"][p.with.transpose_a ? at(k, i, p.M) : at(i, k, p.K)] *
               v["b"][p.with.transpose_b ? at(j, k, p.K) : at(k, j, p.N)];
      const int64_t here = at(i, j, p.N);
      const double added = p.with.accumulate ? c[here] : p.with.addend ? v["addend"][here] : 0;
      c[here] = p.with.alpha * sum + (p.with.bias ? v["bias"][j] : 0) + added;
    }
  if (ends_with(p, GemmEnd::gated)) v["y"] = gated_units(p.with.function, c, p.N / 2);
  if (ends_with(p, GemmEnd::rotated)) rotate(p, c);
  if (ends_with(p, GemmEnd::gradient)) {
    v["dgate_up"] = gated_gradients(p.with.function, c, v["gate_up"], p.N);
    return;
  }
  v["c"] = std::move(c);
}

}  // namespace

Case gemm_case(const GemmSetting& p) {
  const auto stored = [&](const Shape& shape) { return Shape{shape[0], width(p, shape[1])}; };
  const Shape a = stored(shape_of_a(p)), b = stored(shape_of_b(p)), c = stored(shape_of_c(p));
  std::vector<Arg> args{{"a", p.in, a, Role::input}, {"b", p.in, b, Role::input}};
  if (p.with.bias) args.push_back({"bias", p.in, {p.N}, Role::input});
  if (p.with.addend) args.push_back({"addend", p.out, c, Role::input});
  if (ends_with(p, GemmEnd::gradient)) {
    args.push_back({"gate_up", p.in, {p.M, 2 * p.N}, Role::input});
    args.push_back({"dgate_up", p.in, {p.M, 2 * p.N}, Role::output});
  } else {
    args.push_back({"c", p.out, c, p.with.accumulate || in_wider_rows(p) ? Role::updated : Role::output});
  }
  if (ends_with(p, GemmEnd::gated)) args.push_back({"y", p.in, {p.M, p.N / 2}, Role::output});
  if (ends_with(p, GemmEnd::rotated)) {
    args.push_back({"positions", DType::i32, {p.M}, Role::constant, [](int64_t row, double) {
                      return position_of(row);
                    }});
    args.push_back({"table",
                    DType::f32,
                    {kPositions, p.with.head},
                    Role::constant,
                    [D = p.with.head](int64_t i, double) { return turn_of(i / D, i % D, D / 2); }});
  }
  return {.op = "gemm",
          .shape = str(
              p.M, " x ", p.N, " x ", p.K, p.with.transpose_a ? " a^T" : "", p.with.transpose_b ? " b^T" : "",
              p.with.bias ? " bias" : "", p.with.accumulate ? " c+=" : "", p.with.addend ? " + addend" : "",
              p.with.packed ? " packed" : "", p.with.aligned ? " aligned" : "",
              p.with.alpha != 1 ? str(" alpha ", p.with.alpha) : "", p.out != p.in ? " into f32" : "",
              ends_with(p, GemmEnd::gated)      ? " gated"
              : ends_with(p, GemmEnd::gradient) ? " to gradients"
              : ends_with(p, GemmEnd::rotated)  ? str(" rotated ", p.with.head)
                                                : "",
              p.with.function == Gate::gelu ? " gelu" : "", p.with.apart ? " apart" : "",
              p.with.own ? " own" : ""),
          .dtype = p.in,
          .args = std::move(args),
          .run =
              [=](Stream& s, Arena& scratch, const Tensors& t) {
                const KernelsOf kernels(p.with.own);
                const ArenaScope scope(scratch);
                Gemm g = arguments(
                    p, t, ends_with(p, GemmEnd::gradient) ? scratch.alloc(p.out, shape_of_c(p)) : Tensor{});
                const ProductEnd apart = p.with.apart ? std::exchange(g.end, {}) : ProductEnd();
                gemm(s, scratch, g);
                flatshard::run(s, apart);
              },
          .min_bytes =
              [=](const Tensors& t) {
                const Gemm g = arguments(p, t);
                if (ends_with(p, GemmEnd::gated)) return min_bytes(g) + bytes_of(t["y"]);
                if (ends_with(p, GemmEnd::gradient)) return bytes_of(g.a, g.b, t["gate_up"], t["dgate_up"]);
                return min_bytes(g);
              },
          .flops = [=](const Tensors& t) { return flops(arguments(p, t)); },
          .reference = [=](Values& v) { formula(p, v); },
          // An end reads rounded values, and rounds again.
          .tolerance_factor = ends_with(p, GemmEnd::none) ? 1.0 : 2.0,
          .matrix_bound = true};
}

namespace {

// The input is the last N columns of wider rows, unless `stride` is N.
Case bias_case(DType dtype, int64_t rows, int64_t N, int64_t stride, bool accumulate = true) {
  const auto bias_arguments = [=](const Tensors& t) -> BiasBackward {
    return {.db = t["db"],
            .dy = packed_columns(t["dy"], stride - N, {rows, N}),
            .accumulate = accumulate,
            .dy_stride = stride};
  };
  return {.op = "bias_backward",
          .shape = str(rows, " x ", N, stride == N ? "" : " packed", accumulate ? "" : " db="),
          .dtype = dtype,
          .args = {{"b", dtype, {N}, Role::input},
                   {"dy", dtype, {rows, stride}, Role::input},
                   {"db", DType::f32, {N}, accumulate ? Role::updated : Role::output}},
          .run = [=](Stream& s, Arena& scratch,
                     const Tensors& t) { bias_backward(s, scratch, bias_arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(bias_arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(bias_arguments(t)); },
          .reference =
              [=](Values& v) {
                v["y"].assign(rows * stride, 0);
                for (int64_t i = 0; i < rows * N; ++i)
                  v["y"][i / N * stride + stride - N + i % N] = v["b"][i % N];
              },
          .gradients = true};
}

// Products with a factor that no dtype stores exactly, in every layout and as in an adapter
// (model/adapter.h).
std::vector<Case> scaled_cases(DType dtype) {
  constexpr float kAlpha = 0.7f;
  std::vector<Case> cases;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      for (const bool adds : {false, true}) {
        const GemmOptions with{.transpose_a = ta, .transpose_b = tb, .accumulate = adds, .alpha = kAlpha};
        cases.push_back(gemm_case({dtype, dtype, 37, 45, 8, with}));
        cases.push_back(gemm_case({dtype, DType::f32, 8, 35, 97, with}));
      }
  constexpr int64_t kTokens = 70, kIn = 66, kOut = 90, kRank = 3;
  const auto add = [&](DType out, int64_t M, int64_t N, int64_t K, const GemmOptions& with) {
    cases.push_back(gemm_case({dtype, out, M, N, K, with}));
  };
  add(dtype, kTokens, kOut, kRank,
      {.transpose_a = true, .transpose_b = true, .accumulate = true, .alpha = -1.7f});  // y += u^T b^T
  add(dtype, kRank, kTokens, kOut, {.transpose_a = true, .transpose_b = true, .alpha = kAlpha});  // du
  add(DType::f32, kOut, kRank, kTokens,
      {.transpose_a = true, .transpose_b = true, .accumulate = true, .alpha = kAlpha});  // db
  add(DType::f32, kRank, kIn, kTokens, {.accumulate = true});                            // da
  add(dtype, kTokens, kIn, kRank, {.transpose_a = true, .accumulate = true});            // dx
  add(dtype, 1, 9, 5, {.transpose_b = true, .accumulate = true, .alpha = kAlpha});
  add(dtype, 300, 170, 90, {.transpose_b = true, .accumulate = true, .alpha = kAlpha});  // several tiles
  add(dtype, 20, 24, 1030, {.alpha = kAlpha});  // K above the blocks of the widened and the plain product
  add(DType::f32, 4, 6, 0, {.accumulate = true, .alpha = kAlpha});
  return cases;
}

// Products with an addend, and products of columns of wider rows: with many rows, with few, and with K = 0.
std::vector<Case> added_and_packed_cases(DType dtype) {
  std::vector<Case> cases;
  for (const bool packed : {false, true})
    for (const int64_t M : {1, 9, 70})
      for (const bool tb : {false, true}) {
        const GemmOptions with{.transpose_b = tb, .bias = tb, .addend = true, .packed = packed};
        cases.push_back(gemm_case({dtype, dtype, M, 75, 33, with}));
      }
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      cases.push_back(
          gemm_case({dtype,
                     DType::f32,
                     17,
                     33,
                     65,
                     {.transpose_a = ta, .transpose_b = tb, .accumulate = true, .packed = true}}));
  cases.push_back(gemm_case({dtype, DType::f32, 37, 45, 8, {.alpha = 0.7f, .addend = true}}));
  cases.push_back(gemm_case({dtype, dtype, 4, 6, 0, {.bias = true, .addend = true, .packed = true}}));
  // Several tiles in both directions.
  cases.push_back(
      gemm_case({dtype, dtype, 300, 170, 90, {.transpose_b = true, .addend = true, .packed = true}}));
  return cases;
}

// Products that end with gated units of c, or with their gradients.
std::vector<Case> ending_cases(DType dtype) {
  std::vector<Case> cases;
  for (const Gate function : {Gate::silu, Gate::gelu}) {
    cases.push_back(
        gemm_case({dtype,
                   dtype,
                   37,
                   48,
                   24,
                   {.transpose_b = true, .bias = true, .end = GemmEnd::gated, .function = function}}));
    cases.push_back(gemm_case({dtype, dtype, 37, 24, 40, {.end = GemmEnd::gradient, .function = function}}));
  }
  for (const int64_t head : {64, 128})
    cases.push_back(gemm_case({dtype,
                               dtype,
                               37,
                               3 * head,
                               24,
                               {.transpose_b = true, .bias = true, .end = GemmEnd::rotated, .head = head}}));
  return cases;
}

// Products of matrices whose rows are longer in memory, to be aligned.
std::vector<Case> aligned_cases(DType dtype) {
  std::vector<Case> cases;
  for (const bool ta : {false, true})
    for (const bool tb : {false, true})
      cases.push_back(gemm_case({dtype,
                                 DType::f32,
                                 17,
                                 35,
                                 9,
                                 {.transpose_a = ta, .transpose_b = tb, .accumulate = ta, .aligned = true}}));
  return cases;
}

// The products of a linear layer without rows: y and dx are empty, dw is zero or unchanged.
std::vector<Case> without_rows(DType dtype) {
  std::vector<Case> cases;
  for (const bool packed : {false, true}) {
    cases.push_back(gemm_case(
        {dtype, dtype, 0, 9, 5, {.transpose_b = true, .bias = true, .addend = true, .packed = packed}}));
    cases.push_back(gemm_case({dtype, dtype, 0, 5, 9, {.packed = packed}}));
    for (const DType out : {dtype, DType::f32})
      for (const bool accumulate : {false, true})
        cases.push_back(gemm_case(
            {dtype, out, 9, 5, 0, {.transpose_a = true, .accumulate = accumulate, .packed = packed}}));
  }
  for (const bool accumulate : {false, true}) {
    cases.push_back(gemm_case({dtype, DType::f32, 5, 9, 0, {.transpose_b = true, .accumulate = accumulate}}));
    cases.push_back(gemm_case({dtype,
                               DType::f32,
                               40,
                               70,
                               0,
                               {.transpose_a = true, .transpose_b = true, .accumulate = accumulate}}));
    cases.push_back(bias_case(dtype, 0, 5, 5, accumulate));
    cases.push_back(bias_case(dtype, 0, 16, 40, accumulate));
  }
  return cases;
}

std::vector<Case> test_cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        cases.push_back(gemm_case({dtype, dtype, 5, 7, 3, {ta, tb}}));
        cases.push_back(gemm_case(
            {dtype, DType::f32, 17, 33, 65, {.transpose_a = ta, .transpose_b = tb, .accumulate = true}}));
        cases.push_back(
            gemm_case({dtype, dtype, 9, 40, 16, {.transpose_a = ta, .transpose_b = tb, .bias = true}}));
      }
    cases.push_back(gemm_case({dtype, dtype, 1, 1, 1}));
    cases.push_back(gemm_case({dtype, dtype, 1, 130, 70, {.transpose_b = true}}));
    cases.push_back(gemm_case({dtype, dtype, 6, 10, 12, {.accumulate = true}}));
    for (const int64_t M : {1, 4, 15, 16})  // few rows: full and partial tiles
      for (const bool tb : {false, true})
        cases.push_back(gemm_case({dtype, dtype, M, 135, 97, {.transpose_b = tb, .bias = true}}));
    cases.push_back(gemm_case({dtype, dtype, 4, 6, 0, {.bias = true}}));
    cases.push_back(gemm_case({dtype, DType::f32, 4, 6, 0, {.accumulate = true}}));
    cases.push_back(bias_case(dtype, 1, 5, 5));
    cases.push_back(bias_case(dtype, 67, 5, 5, false));
    cases.push_back(bias_case(dtype, 130, 9, 9));
    cases.push_back(bias_case(dtype, 70, 16, 40));
    std::ranges::move(without_rows(dtype), std::back_inserter(cases));
    std::ranges::move(scaled_cases(dtype), std::back_inserter(cases));
    std::ranges::move(added_and_packed_cases(dtype), std::back_inserter(cases));
    std::ranges::move(aligned_cases(dtype), std::back_inserter(cases));
    std::ranges::move(ending_cases(dtype), std::back_inserter(cases));
  }
  // Several tiles in both directions with narrower ones at the edges, and K above the block of the plain
  // implementation.
  cases.push_back(gemm_case({DType::f32, DType::f32, 300, 170, 90, {.transpose_b = true, .bias = true}}));
  cases.push_back(
      gemm_case({DType::bf16, DType::f32, 150, 300, 111, {.transpose_a = true, .accumulate = true}}));
  cases.push_back(gemm_case({DType::bf16, DType::bf16, 70, 75, 1030}));
  return cases;
}

// A product of bf16 on a GPU, by cuBLASLt and by the project's kernel.
void add_both(std::vector<Case>& cases, DType out, int64_t M, int64_t N, int64_t K, GemmOptions with) {
  for (const bool own : {false, true}) {
    with.own = own;
    cases.push_back(gemm_case({DType::bf16, out, M, N, K, with}));
  }
}

// A linear layer in training: y, dx, and dw added in fp32 and written in 16 bits.
void add_layer(std::vector<Case>& cases, const LinearLayer& layer) {
  const auto [tokens, in, out] = layer;
  const auto add = [&](DType type, int64_t M, int64_t N, int64_t K, const GemmOptions& with) {
    add_both(cases, type, M, N, K, with);
  };
  add(DType::bf16, tokens, out, in, {.transpose_b = true});
  add(DType::bf16, tokens, in, out, {});
  add(DType::f32, out, in, tokens, {.transpose_a = true, .accumulate = true});
  add(DType::bf16, out, in, tokens, {.transpose_a = true});
}

// The head of GPT-2, one chunk of its tokens: with its vocabulary, and with the next multiple of 8.
std::vector<Case> heads_of_gpt2() {
  constexpr int64_t kTokens = 4096, kHidden = 768;
  std::vector<Case> cases;
  const auto add = [&](DType out, int64_t M, int64_t N, int64_t K, GemmOptions with) {
    with.aligned = true;
    add_both(cases, out, M, N, K, with);
  };
  for (const int64_t vocab : {50257, 50264}) {
    add(DType::f32, kTokens, vocab, kHidden, {.transpose_b = true});
    add(DType::bf16, kTokens, kHidden, vocab, {});
    add(DType::f32, vocab, kHidden, kTokens, {.transpose_a = true, .accumulate = true});
  }
  return cases;
}

std::vector<Case> bench_cases() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    cases.push_back(gemm_case({dtype, dtype, 2048, 2048, 2048}));
    cases.push_back(gemm_case({dtype, dtype, 256, 3072, 768, {.transpose_b = true, .bias = true}}));
    cases.push_back(gemm_case({dtype, dtype, 256, 768, 3072}));
    cases.push_back(
        gemm_case({dtype, DType::f32, 3072, 768, 256, {.transpose_a = true, .accumulate = true}}));
    cases.push_back(gemm_case({dtype, dtype, 256, 50257, 768, {.transpose_b = true}}));
    cases.push_back(gemm_case({dtype, dtype, 1, 4096, 4096, {.transpose_b = true}}));  // generation
    cases.push_back(gemm_case({dtype, dtype, 1, 4096, 4096}));
    cases.push_back(gemm_case({dtype, dtype, 8, 4096, 4096, {.transpose_b = true}}));
    cases.push_back(bias_case(dtype, 16384, 2048, 2048));
  }
  const size_t small = cases.size();
  const auto add = [&](DType out, int64_t M, int64_t N, int64_t K, GemmOptions with) {
    add_both(cases, out, M, N, K, with);
  };
  add(DType::bf16, 4096, 4096, 4096, {});
  add(DType::bf16, 8192, 8192, 8192, {});
  // Linear layers of models with 8 and 1.5 billion parameters: y, dx, dw.
  for (const auto& [tokens, in, out] : {std::array<int64_t, 3>{8192, 4096, 14336}, {16384, 1536, 8960}}) {
    add(DType::bf16, tokens, out, in, {.transpose_b = true});
    add(DType::bf16, tokens, in, out, {});
    add(DType::f32, out, in, tokens, {.transpose_a = true, .accumulate = true});
  }
  const size_t usual = cases.size();
  for (const LinearLayer& layer : linear_layers()) add_layer(cases, layer);
  std::ranges::move(heads_of_gpt2(), std::back_inserter(cases));
  for (size_t i = small; i < cases.size(); ++i) cases[i].needs_gpu = true;
  for (size_t i = usual; i < cases.size(); ++i) cases[i].is_detail = true;
  return cases;
}

}  // namespace

std::vector<Case> gemm_cases(Scale scale) {
  if (scale == Scale::test) return test_cases();
  if (scale == Scale::bench) return bench_cases();
  std::vector<Case> cases;
  if (scale == Scale::vm) {  // products come from a library
    for (const DType dtype : {DType::f32, DType::bf16}) cases.push_back(bias_case(dtype, 1024, 512, 512));
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    cases.push_back(gemm_case({dtype, dtype, 13, 24, 40, {.transpose_b = true, .bias = true}}));
    cases.push_back(bias_case(dtype, 70, 24, 24));
  }
  return cases;
}

}  // namespace flatshard::bench
