// The machine's cuBLASLt: the values of products, and calls that it refuses.

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <cublasLt.h>

#include "ptx_vm/numbers.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/device_array.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

template <class T>
constexpr cudaDataType_t kType = std::is_same_v<T, float>    ? CUDA_R_32F
                                 : std::is_same_v<T, BFloat> ? CUDA_R_16BF
                                                             : CUDA_R_16F;

enum class Added { nothing, itself, other };

// d (m, n) = alpha op(a) op(b) + added + bias, of column-major matrices.
struct Product {
  int64_t m = 5, n = 7, k = 3;
  bool transpose_a = false, transpose_b = false, has_bias = false;
  Added added = Added::nothing;
  float alpha = 1;
  int64_t gap = 0;  // elements between columns that belong to no matrix
  bool is_tf32 = false;
};

// A column-major matrix of values that depend on `seed`.
struct Values {
  Values(int64_t r, int64_t c, int64_t gap, int seed) : rows(r), columns(c), pitch(r + gap) {
    for (int64_t i = 0; i < pitch * columns; ++i)
      all.push_back(static_cast<float>((i * 7 + i / 5 + seed) % 5 - 2));
  }
  float at(int64_t row, int64_t column) const { return all[column * pitch + row]; }

  int64_t rows, columns, pitch;
  std::vector<float> all;
};

template <class T>
std::vector<T> converted(const std::vector<float>& values) {
  std::vector<T> all;
  for (const float x : values) all.push_back(from_float<T>(x));
  return all;
}

// The objects of cuBLASLt for a product.
class Calls {
 public:
  Calls(const Product& p, cudaDataType_t in, cudaDataType_t out, const Values& a, const Values& b,
        const Values& d)
      : alpha_(p.alpha), beta_(p.added == Added::nothing ? 0.0f : 1.0f) {
    CHECK(cublasLtCreate(&handle_) == CUBLAS_STATUS_SUCCESS);
    cublasLtMatmulDescCreate(&operation_, p.is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                             CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (p.has_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out);
    }
    cublasLtMatrixLayoutCreate(&a_, in, a.rows, a.columns, a.pitch);
    cublasLtMatrixLayoutCreate(&b_, in, b.rows, b.columns, b.pitch);
    cublasLtMatrixLayoutCreate(&d_, out, d.rows, d.columns, d.pitch);
    cublasLtMatmulPreferenceCreate(&preference_);
  }
  ~Calls() {
    for (cublasLtMatrixLayout_t layout : {a_, b_, d_}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t name, T value) {
    CHECK(cublasLtMatmulDescSetAttribute(operation_, name, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t choose(cublasLtMatmulAlgo_t& algorithm) {
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, operation_, a_, b_, d_, d_, preference_, 1, &best, &found);
    algorithm = best.algo;
    return status;
  }
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, const void* a, const void* b, const void* c,
                     void* d) {
    return cublasLtMatmul(handle_, operation_, &alpha_, a, a_, b, b_, &beta_, c, d_, d, d_, &algorithm,
                          nullptr, 0, nullptr);
  }

 private:
  float alpha_, beta_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
};

// The matrices of a product.
struct Matrices {
  explicit Matrices(const Product& p)
      : a(p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.gap, 1),
        b(p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.gap, 3),
        c(p.m, p.n, p.gap, 2),
        d(p.m, p.n, p.gap, 4),
        bias(p.m, 1, 0, 0) {}
  Values a, b, c, d, bias;
};

// Values after the product, whose sums are small whole numbers, which every type stores.
template <class In, class Out>
void check_values(const Product& p) {
  Matrices host(p);
  const DeviceArray<In> a(converted<In>(host.a.all)), b(converted<In>(host.b.all));
  const DeviceArray<Out> c(converted<Out>(host.c.all)), d(converted<Out>(host.d.all)),
      bias(converted<Out>(host.bias.all));
  {
    Calls calls(p, kType<In>, kType<Out>, host.a, host.b, host.d);
    if (p.has_bias) calls.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias.data));
    cublasLtMatmulAlgo_t algorithm;
    REQUIRE(calls.choose(algorithm) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(calls.run(algorithm, a.data, b.data, p.added == Added::other ? c.data : d.data, d.data) ==
            CUBLAS_STATUS_SUCCESS);
  }
  std::vector<float> expected = host.d.all;
  for (int64_t row = 0; row < p.m; ++row)
    for (int64_t column = 0; column < p.n; ++column) {
      float sum = 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += (p.transpose_a ? host.a.at(k, row) : host.a.at(row, k)) *
               (p.transpose_b ? host.b.at(column, k) : host.b.at(k, column));
      float& value = expected[column * host.d.pitch + row];
      value = p.alpha * sum +
              (p.added == Added::itself  ? value
               : p.added == Added::other ? host.c.at(row, column)
                                         : 0) +
              (p.has_bias ? host.bias.at(row, 0) : 0);
    }
  std::vector<float> got;
  for (const Out x : d.values()) got.push_back(to_float(x));
  CHECK(got == expected);
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
}

// The sum of these products of fp32 numbers.
float sum_of(const std::vector<float>& a, const std::vector<float>& b, bool is_tf32) {
  const Product p{.m = 1, .n = 1, .k = static_cast<int64_t>(a.size()), .is_tf32 = is_tf32};
  const Matrices shapes(p);
  const DeviceArray<float> left(a), right(b), sum(1);
  Calls calls(p, CUDA_R_32F, CUDA_R_32F, shapes.a, shapes.b, shapes.d);
  cublasLtMatmulAlgo_t algorithm;
  REQUIRE(calls.choose(algorithm) == CUBLAS_STATUS_SUCCESS);
  REQUIRE(calls.run(algorithm, left.data, right.data, sum.data, sum.data) == CUBLAS_STATUS_SUCCESS);
  return sum.values().at(0);
}

}  // namespace

TEST_CASE("products have the values of three loops, in every layout, type and form") {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const Added added : {Added::nothing, Added::itself, Added::other})
        for (const int64_t gap : {0, 3})
          for (const bool is_large : {false, true}) {  // several blocks of the loops, with a rest
            Product p{.transpose_a = transpose_a, .transpose_b = transpose_b, .added = added, .gap = gap};
            if (is_large) p.m = 67, p.n = 9, p.k = 31;
            CAPTURE(p.m);
            CAPTURE(gap);
            check_values<float, float>(p);
            check_values<BFloat, float>(p);
            p.has_bias = true;
            check_values<BFloat, BFloat>(p);
            p.alpha = -2;
            check_values<Half, Half>(p);
          }
}

TEST_CASE("products are summed in fp32 in the order of k, and rounded once") {
  const float large = 0x1p24f;
  CHECK(sum_of({large, 1, 1}, {1, 1, 1}, false) == large);
  CHECK(sum_of({1, 1, large}, {1, 1, 1}, false) == large + 2);
  CHECK(sum_of({1 + 0x1p-12f}, {1}, false) == 1 + 0x1p-12f);
  CHECK(sum_of({1 + 0x1p-12f}, {1}, true) == 1);
  CHECK(sum_of({1 + 0x1p-11f}, {1}, true) == 1 + 0x1p-10f);
}

TEST_CASE("a product of matrices that do not fit, or by another problem's algorithm, is an error") {
  const Product p{};
  Matrices host(p);
  const DeviceArray<float> a(host.a.all), b(host.b.all), d(host.d.all);
  Calls calls(p, CUDA_R_32F, CUDA_R_32F, host.a, host.b, host.d);
  cublasLtMatmulAlgo_t algorithm;
  REQUIRE(calls.choose(algorithm) == CUBLAS_STATUS_SUCCESS);

  const Values wrong(4, 7, 0, 1);
  Calls unfit(p, CUDA_R_32F, CUDA_R_32F, host.a, wrong, host.d);
  cublasLtMatmulAlgo_t none;
  const cublasStatus_t status = unfit.choose(none);
  CHECK(status == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(test::missing_from(cublasLtGetStatusString(status), {"5 x 3", "4 x 7", "5 x 7"}) == "");

  const Product other{.transpose_a = true};
  const Matrices turned(other);
  Calls others(other, CUDA_R_32F, CUDA_R_32F, turned.a, turned.b, turned.d);
  const cublasStatus_t refused = others.run(algorithm, a.data, b.data, d.data, d.data);
  CHECK(refused == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(test::missing_from(cublasLtGetStatusString(refused), {"algorithm", "another problem"}) == "");
  CHECK(take_findings().empty());
}
