// Cases of products with a 4-bit weight, and in the benchmark of the equivalent dense products.

#include <iterator>

#include "bench/case.h"
#include "bench/four_bit_args.h"
#include "kernels/four_bit_product.h"
#include "kernels/gemm.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

struct Problem {
  DType in, out;
  int64_t M;
  FourBitWeight w;
  bool transpose_w = false, bias = false, accumulate = false;
  bool packed = false;  // a, c and an addend are columns of wider rows

  int64_t N() const { return transpose_w ? w.out : w.in; }
  int64_t K() const { return transpose_w ? w.in : w.out; }
  DType compute() const { return w.format.compute.value_or(in); }
  std::string shape() const {
    return str(M, " x ", N(), " x ", K(), transpose_w ? " w^T" : "", bias ? " bias" : "",
               accumulate ? " c+=" : "", packed ? " + addend, packed" : "");
  }
};

constexpr int64_t kBefore = 2, kBeside = 7;  // columns before a packed matrix, and around it

FourBitProduct arguments(const Problem& p, const Tensors& t) {
  const auto columns = [&](const char* name) {
    const Tensor all = t[name];
    return p.packed ? packed_columns(all, kBefore, {all.shape[0], all.shape[1] - kBeside}) : all;
  };
  return {.c = columns("c"),
          .a = columns("a"),
          .w = {four_bit_matrix(t, p.w)},
          .bias = p.bias ? t["bias"] : Tensor{},
          .addend = p.packed ? columns("addend") : Tensor{},
          .transpose_w = p.transpose_w,
          .accumulate = p.accumulate,
          .compute = p.w.format.compute,
          .a_stride = p.packed ? p.K() + kBeside : 0,
          .c_stride = p.packed ? p.N() + kBeside : 0};
}

double rounded(double value, DType dtype) {
  return visit_float(dtype, [&]<class T>() {
    return static_cast<double>(static_cast<float>(T(static_cast<float>(value))));
  });
}

void formula(const Problem& p, Values& v) {
  const int64_t N = p.N(), K = p.K();
  const int64_t beside = p.packed ? kBeside : 0, before = p.packed ? kBefore : 0;
  std::vector<double> w(N * K), c = p.accumulate || p.packed ? v["c"] : std::vector<double>(p.M * N);
  for (int64_t i = 0; i < N * K; ++i) w[i] = rounded(four_bit_value(v, p.w, i), p.compute());
  for (int64_t i = 0; i < p.M; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double sum = p.bias ? rounded(v["bias"][j], p.compute()) : 0;
      for (int64_t k = 0; k < K; ++k)
        sum += rounded(v["a"][i * (K + beside) + before + k], p.compute()) *
               w[p.transpose_w ? j * K + k : k * N + j];
      const int64_t here = i * (N + beside) + before + j;
      c[here] = sum + (p.accumulate ? c[here] : p.packed ? v["addend"][here] : 0);
    }
  v["c"] = std::move(c);
}

Case product_case(const Problem& p) {
  std::vector<Arg> args = four_bit_args(p.w);
  const int64_t beside = p.packed ? kBeside : 0;
  const Shape c{p.M, p.N() + beside};
  args.push_back({"a", p.in, {p.M, p.K() + beside}, Role::constant});
  if (p.bias) args.push_back({"bias", p.in, {p.N()}, Role::constant});
  if (p.packed) args.push_back({"addend", p.out, c, Role::constant});
  args.push_back({"c", p.out, c, p.accumulate || p.packed ? Role::updated : Role::output});
  return {.op = "four_bit_product",
          .shape = str(p.shape(), ' ', p.w.name(), p.out != p.in ? str(" into ", p.out) : "",
                       p.compute() != p.in ? str(" in ", p.compute()) : ""),
          .dtype = p.in,
          .args = std::move(args),
          .run = [=](Stream& s, Arena& scratch,
                     const Tensors& t) { four_bit_product(s, scratch, arguments(p, t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(p, t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(p, t)); },
          .reference = [=](Values& v) { formula(p, v); },
          .matrix_bound = p.M > 16};
}

Case dense_case(const Problem& p) {
  const auto args = [=](const Tensors& t) {
    return Gemm{.c = t["c"], .a = t["a"], .b = t["b"], .transpose_b = p.transpose_w};
  };
  return {.op = "gemm",
          .shape = p.shape() + " dense",
          .dtype = p.in,
          .args = {{"a", p.in, {p.M, p.K()}, Role::constant},
                   {"b", p.in, {p.w.out, p.w.in}, Role::constant},
                   {"c", p.out, {p.M, p.N()}, Role::output}},
          .run = [=](Stream& s, Arena& scratch, const Tensors& t) { gemm(s, scratch, args(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(args(t)); },
          .flops = [=](const Tensors& t) { return flops(args(t)); },
          .matrix_bound = p.M > 16};
}

std::vector<Case> test_cases() {
  constexpr DType kF32 = DType::f32, kBf16 = DType::bf16, kF16 = DType::f16;
  constexpr FourBitKind kNf4 = FourBitKind::nf4, kFp4 = FourBitKind::fp4;
  std::vector<Problem> problems;
  for (const DType dtype : {kF32, kBf16, kF16})
    for (const bool transposed : {false, true})
      for (const int64_t M : {1, 5, 40}) {
        problems.push_back({dtype, dtype, M, {70, 33, {kNf4, 64, true}}, transposed, transposed});
        problems.push_back({dtype, kF32, M, {33, 128, {kFp4, 32}}, transposed, !transposed, true});
      }
  // Several tiles of columns with a narrower one at the end, several tiles of rows, and an odd number of rows
  // of w.
  problems.push_back({kBf16, kBf16, 530, {200, 75, {kNf4, 64}}, true, true});
  problems.push_back({kF32, kF32, 70, {75, 301, {kNf4, 128, true}}});
  problems.push_back({kF32, kF32, 1, {1, 1, {kNf4, 4096}}, true});
  problems.push_back({kBf16, kBf16, 3, {9, 9001, {kFp4, 64}}, true});  // decoded in several pieces
  // The compute dtype differs from the dtype of the activations.
  for (const DType in : {kF32, kBf16, kF16})
    for (const DType compute : {kF32, kBf16, kF16})
      for (const int64_t M : {2, 20})
        for (const bool packed : {false, true})
          problems.push_back(
              {in, in, M, {24, 40, {kNf4, 64, false, compute}}, true, true, M == 20 && !packed, packed});
  std::vector<Case> cases;
  for (const Problem& p : problems) cases.push_back(product_case(p));
  return cases;
}

std::vector<Case> bench_cases() {
  std::vector<Case> cases;
  for (const int64_t tokens : {1, 8, 512, 2048})
    for (const bool transposed : {true, false}) {
      const Problem p{
          DType::bf16, DType::bf16, tokens, {4096, 4096, {FourBitKind::nf4, 64, true}}, transposed};
      if (tokens < 512 && !transposed) continue;  // generation has no backward pass
      cases.push_back(product_case(p));
      cases.push_back(dense_case(p));
    }
  return cases;
}

}  // namespace

std::vector<Case> four_bit_product_cases(Scale scale) {
  if (scale == Scale::test) return test_cases();
  if (scale == Scale::bench) return bench_cases();
  return {};  // vm: kernels of four_bit and of a library do the work
}

}  // namespace flatshard::bench
