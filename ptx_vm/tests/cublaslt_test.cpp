// The machine's cuBLASLt: the values of products, and calls that it refuses.

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
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

// E4M3 codes of 0.5, 1, 2, -1 and 0, in a pattern that depends on `seed`.
std::vector<Fp8> fp8_values(int64_t count, int seed) {
  constexpr uint8_t kCodes[] = {0x30, 0x38, 0x40, 0xb8, 0x00};
  std::vector<Fp8> all;
  for (int64_t i = 0; i < count; ++i) all.push_back({kCodes[(i * 7 + i / 5 + seed) % 5]});
  return all;
}

// Powers of two, so that sums are exact.
std::vector<float> scale_values(int64_t count) {
  std::vector<float> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(std::ldexp(1.0f, static_cast<int>(i % 3) - 1));
  return all;
}

// The scales of a factor of `rows` rows of k elements: how many, and the index of that of an element.
struct ScaleLayout {
  int32_t mode;
  int64_t rows, k;
  int64_t parts() const { return (k + 127) / 128; }
  int64_t aligned_parts() const { return (parts() + 3) / 4 * 4; }
  int64_t count() const {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F   ? 1
           : mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ? rows * parts()
                                                             : (rows + 127) / 128 * aligned_parts();
  }
  int64_t index(int64_t row, int64_t i) const {
    return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F   ? 0
           : mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F ? i / 128 * rows + row
                                                             : row / 128 * aligned_parts() + i / 128;
  }
};

}  // namespace

TEST_CASE("a product in FP8 multiplies each element by its scale, one for all or by rows or blocks") {
  constexpr int32_t kAll = CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F,
                    kRows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                    kBlocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  const Product p{.m = 144, .n = 16, .k = 272, .transpose_a = true};
  const Matrices shapes(p);
  const std::vector<Fp8> a = fp8_values(p.m * p.k, 1), b = fp8_values(p.n * p.k, 3);
  const DeviceArray<Fp8> a_there(a), b_there(b);
  const DeviceArray<float> d(static_cast<size_t>(p.m * p.n));
  for (const auto& [of_a, of_b] :
       {std::pair{kAll, kAll}, {kRows, kRows}, {kBlocks, kRows}, {kRows, kBlocks}}) {
    CAPTURE(of_a);
    CAPTURE(of_b);
    const ScaleLayout left{of_a, p.m, p.k}, right{of_b, p.n, p.k};
    const std::vector<float> a_scales = scale_values(left.count()), b_scales = scale_values(right.count());
    const DeviceArray<float> a_scales_there(a_scales), b_scales_there(b_scales);
    Calls calls(p, CUDA_R_8F_E4M3, CUDA_R_32F, shapes.a, shapes.b, shapes.d);
    calls.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, of_a);
    calls.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, of_b);
    calls.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(a_scales_there.data));
    calls.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(b_scales_there.data));
    cublasLtMatmulAlgo_t algorithm;
    REQUIRE(calls.choose(algorithm) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(calls.run(algorithm, a_there.data, b_there.data, d.data, d.data) == CUBLAS_STATUS_SUCCESS);
    std::vector<float> expected;
    for (int64_t column = 0; column < p.n; ++column)
      for (int64_t row = 0; row < p.m; ++row) {
        float sum = 0;
        for (int64_t i = 0; i < p.k; ++i)
          sum += to_float(a[row * p.k + i]) * a_scales[left.index(row, i)] * to_float(b[column * p.k + i]) *
                 b_scales[right.index(column, i)];
        expected.push_back(sum);
      }
    CHECK(d.values() == expected);
    for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
  }

  Calls two_blocks(p, CUDA_R_8F_E4M3, CUDA_R_32F, shapes.a, shapes.b, shapes.d);
  two_blocks.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, kBlocks);
  two_blocks.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, kBlocks);
  cublasLtMatmulAlgo_t none;
  CHECK(two_blocks.choose(none) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(std::string(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE)).find("scale modes 5 and 5") !=
        std::string::npos);
  CHECK(take_findings().empty());
}

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
