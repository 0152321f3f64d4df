#include "bench/fp8_cases.h"

#include <cmath>
#include <memory>
#include <source_location>

#include <cublasLt.h>

#include "bench/kernels/linear_layers.h"
#include "runtime/check.h"

namespace flatshard::bench {
namespace {

constexpr int64_t kBlock = 128;  // elements that share a scale, in both directions
constexpr int64_t kWorkspace = int64_t{32} << 20;

enum class Scales { scalar, by_rows, by_blocks };

// c (M, N) = x (M, K) w (N, K)^T.
struct Problem {
  DType out;
  int64_t M, N, K;
  Scales of_x, of_w;

  int64_t blocks() const { return K / kBlock; }
  // cuBLASLt aligns the scales of 128 rows to 4.
  int64_t aligned_blocks() const { return (blocks() + 3) / 4 * 4; }
};

int64_t scale_count(const Problem& p, Scales scales, int64_t rows) {
  switch (scales) {
    case Scales::scalar:
      return 1;
    case Scales::by_rows:
      return rows * p.blocks();
    case Scales::by_blocks:
      break;
  }
  return p.aligned_blocks() * ((rows + kBlock - 1) / kBlock);
}

// The index of the scale of an element.
int64_t scale_of(const Problem& p, Scales scales, int64_t rows, int64_t row, int64_t k) {
  switch (scales) {
    case Scales::scalar:
      return 0;
    case Scales::by_rows:
      return k / kBlock * rows + row;
    case Scales::by_blocks:
      break;
  }
  return row / kBlock * p.aligned_blocks() + k / kBlock;
}

// E4M3: a sign, four bits of exponent with bias 7, three of mantissa. No code of a case is a NaN or
// subnormal.
double decoded(double code) {
  const int bits = static_cast<int>(code);
  const double size = std::ldexp(1 + (bits & 7) / 8.0, (bits >> 3 & 15) - 7);
  return bits & 0x80 ? -size : size;
}

// Codes of values from 1/8 to 15/8.
double random_code(int64_t, double unit) {
  const int bits = static_cast<int>(unit * 64), exponent = 4 + (bits & 3);
  return (bits & 0x20 ? 0x80 : 0) | exponent << 3 | (bits >> 2 & 7);
}

// Powers of two, as scales of blocks would be.
double random_scale(int64_t, double unit) { return std::ldexp(1.0, static_cast<int>(unit * 4) - 2); }

void formula(const Problem& p, Values& v) {
  std::vector<double> c(static_cast<size_t>(p.M * p.N));
  for (int64_t i = 0; i < p.M; ++i)
    for (int64_t j = 0; j < p.N; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < p.K; ++k)
        sum += decoded(v["x"][i * p.K + k]) * v["x_scales"][scale_of(p, p.of_x, p.M, i, k)] *
               decoded(v["w"][j * p.K + k]) * v["w_scales"][scale_of(p, p.of_w, p.N, j, k)];
      c[i * p.N + j] = sum;
    }
  v["c"] = std::move(c);
}

void check_cublas(cublasStatus_t status, std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(str("cuBLASLt: ", cublasLtGetStatusString(status)), where);
}

cublasLtHandle_t handle() {
  static cublasLtHandle_t made = [] {
    cublasLtHandle_t handle = nullptr;
    check_cublas(cublasLtCreate(&handle));
    return handle;
  }();
  return made;
}

// cuBLASLt's description of a problem, and its best algorithm. Its matrices are column-major, so each
// is the transpose of ours, and its first factor is w.
class Product {
 public:
  explicit Product(const Problem& p) {
    check_cublas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (p.of_x != Scales::scalar) {
      set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode(p.of_w));
      set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode(p.of_x));
    }
    w_ = layout(CUDA_R_8F_E4M3, p.K, p.N);
    x_ = layout(CUDA_R_8F_E4M3, p.K, p.M);
    c_ = layout(p.out == DType::f32 ? CUDA_R_32F : CUDA_R_16BF, p.N, p.M);
    choose_algorithm(p);
  }

  void run(Stream& stream, const Tensors& t, const Tensor& workspace) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(t["w_scales"].data));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(t["x_scales"].data));
    const float alpha = 1, beta = 0;
    const Tensor c = t["c"];
    check_cublas(cublasLtMatmul(handle(), operation_, &alpha, t["w"].data, w_, t["x"].data, x_, &beta, c.data,
                                c_, c.data, c_, &algorithm_, workspace.data,
                                static_cast<size_t>(workspace.bytes()),
                                static_cast<cudaStream_t>(stream.native())));
  }

 private:
  static int32_t mode(Scales scales) {
    return scales == Scales::by_rows ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                     : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t name, const T& value) {
    check_cublas(cublasLtMatmulDescSetAttribute(operation_, name, &value, sizeof(value)));
  }

  static cublasLtMatrixLayout_t layout(cudaDataType type, int64_t rows, int64_t columns) {
    cublasLtMatrixLayout_t made = nullptr;
    check_cublas(cublasLtMatrixLayoutCreate(&made, type, static_cast<uint64_t>(rows),
                                            static_cast<uint64_t>(columns), rows));
    return made;
  }

  void choose_algorithm(const Problem& p) {
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(cublasLtMatmulPreferenceCreate(&preference));
    const auto bytes = static_cast<uint64_t>(kWorkspace);
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &bytes, sizeof(bytes)));
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), operation_, w_, x_, c_, c_, preference, 1, &best, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check(status == CUBLAS_STATUS_SUCCESS && found > 0, "cuBLASLt has no algorithm for an FP8 product of ",
          p.M, " x ", p.N, " x ", p.K, ": ", cublasLtGetStatusString(status));
    algorithm_ = best.algo;
  }

  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, c_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

double bytes_of(const Tensors& t) {
  double bytes = 0;
  for (const char* name : {"x", "x_scales", "w", "w_scales", "c"})
    bytes += static_cast<double>(t[name].bytes());
  return bytes;
}

Case fp8_case(const Problem& p) {
  // Prepared by the first run on a GPU and shared by the copies of the case.
  const auto product = std::make_shared<std::unique_ptr<Product>>();
  return {.op = p.of_x == Scales::scalar ? "fp8_product" : "fp8_block_product",
          .shape = str(p.M, " x ", p.N, " x ", p.K, p.out == DType::f32 ? " into f32" : ""),
          .dtype = DType::bf16,
          .args = {{"x", DType::u8, {p.M, p.K}, Role::constant, random_code},
                   {"x_scales", DType::f32, {scale_count(p, p.of_x, p.M)}, Role::constant, random_scale},
                   {"w", DType::u8, {p.N, p.K}, Role::constant, random_code},
                   {"w_scales", DType::f32, {scale_count(p, p.of_w, p.N)}, Role::constant, random_scale},
                   {"c", p.out, {p.M, p.N}, Role::output}},
          .run =
              [=](Stream& stream, Arena& scratch, const Tensors& t) {
                const ArenaScope scope(scratch);
                const Tensor workspace = scratch.alloc(DType::u8, {kWorkspace});
                if (stream.planning()) return;
                if (!*product) *product = std::make_unique<Product>(p);
                (*product)->run(stream, t, workspace);
              },
          .min_bytes = bytes_of,
          .flops = [=](const Tensors&) { return 2.0 * static_cast<double>(p.M * p.N * p.K); },
          .reference = [=](Values& v) { formula(p, v); },
          // Tensor cores keep fewer bits of partial sums of FP8 products than fp32.
          .tolerance_factor = 2.0,
          .matrix_bound = true,
          .needs_gpu = true,
          .is_detail = true,
          .stem = "fp8_product",
          .has_cuda_kernel = true};
}

// The products of a linear layer with tokens: y and dx use weights, dw two activations.
void add_layer(std::vector<Case>& cases, const LinearLayer& layer) {
  const auto [tokens, in, out] = layer;
  for (const bool scalar : {true, false}) {
    const Scales rows = scalar ? Scales::scalar : Scales::by_rows,
                 blocks = scalar ? Scales::scalar : Scales::by_blocks;
    cases.push_back(fp8_case({DType::bf16, tokens, out, in, rows, blocks}));
    cases.push_back(fp8_case({DType::bf16, tokens, in, out, rows, blocks}));
    cases.push_back(fp8_case({DType::f32, out, in, tokens, rows, rows}));
  }
}

}  // namespace

std::vector<Case> fp8_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::test || scale == Scale::vm) {
    add_layer(cases, {.tokens = 2 * kBlock, .in = 3 * kBlock, .out = kBlock});
  } else if (scale == Scale::bench) {
    for (const LinearLayer& layer : linear_layers()) add_layer(cases, layer);
  }
  return cases;
}

}  // namespace flatshard::bench
