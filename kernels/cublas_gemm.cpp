// Matrix products on the GPU with cuBLASLt. It is column-major: a row-major c = a b is its product c^T = b^T
// a^T of the same memory.

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <source_location>

#include <cublasLt.h>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"
#include "runtime/check.h"

namespace flatshard::cuda {
namespace {

// Limits of the workspace for partial sums: that of the fast kernels of sm_90, and for small products, which
// are split most, this many partial results.
constexpr int64_t kMaxWorkspace = int64_t{32} << 20;
constexpr int64_t kMaxParts = 32;
constexpr uint32_t kBestAlignment = 256;  // higher alignments do not change the algorithm

void cublas_check(cublasStatus_t status, const char* what,
                  std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(str(what, ": ", cublasLtGetStatusString(status)), where);
}

cudaDataType type_of(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
}

int64_t workspace_bytes(int64_t M, int64_t N) {
  return std::min(kMaxWorkspace, kMaxParts * M * N * int64_t{sizeof(float)});
}

// The alignment of the data, at most kBestAlignment.
uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return address == 0 ? kBestAlignment
                      : static_cast<uint32_t>(std::min<uintptr_t>(kBestAlignment, address & (~address + 1)));
}

// The properties that determine the best algorithm.
struct Product {
  Device device;
  int64_t M, N, K;
  DType in, out;
  bool transpose_a, transpose_b, bias, adds, tf32;
  GemmStrides strides;
  uint32_t align_a, align_b, align_c, align_addend;

  auto key() const {
    return std::tuple(device.index, M, N, K, in, out, transpose_a, transpose_b, bias, adds, tf32, strides.a,
                      strides.b, strides.c, align_a, align_b, align_c, align_addend);
  }
  bool operator<(const Product& other) const { return key() < other.key(); }
};

// C of cuBLASLt, which it reads only if there is an addend.
const Tensor& addend_or_c(const Gemm& g) { return g.addend.empty() ? g.c : g.addend; }

Product product_of(Device device, const Gemm& g) {
  return {.device = device,
          .M = g.c.shape[0],
          .N = g.c.shape[1],
          .K = g.a.shape[g.transpose_a ? 0 : 1],
          .in = g.a.dtype,
          .out = g.c.dtype,
          .transpose_a = g.transpose_a,
          .transpose_b = g.transpose_b,
          .bias = !g.bias.empty(),
          .adds = !addend_of(g).empty(),
          .tf32 = g.tf32 && g.a.dtype == DType::f32,
          .strides = strides_of(g),
          .align_a = alignment_of(g.a.data),
          .align_b = alignment_of(g.b.data),
          .align_c = alignment_of(g.c.data),
          .align_addend = alignment_of(addend_or_c(g).data)};
}

// A product as described to cuBLASLt, and its best algorithm by the heuristics of cuBLASLt. Cached until the
// program ends.
struct Prepared {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name, const T& value) {
  cublas_check(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name, const T& value) {
  cublas_check(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)),
               "cublasLtMatmulPreferenceSetAttribute");
}

// The layout of a row-major matrix: that of its transpose in column-major order.
cublasLtMatrixLayout_t layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  cublas_check(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(columns),
                                          static_cast<uint64_t>(rows), stride),
               "cublasLtMatrixLayoutCreate");
  return made;
}

void describe(Prepared& made, const Product& p) {
  // Without FAST_TF32, operands of fp32 products are not rounded.
  const cublasComputeType_t compute = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublas_check(cublasLtMatmulDescCreate(&made.operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  // The first factor of cuBLASLt is b.
  set(made.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(made.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(made.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.out));
  }
  const auto& [a, b, c] = p.strides;
  made.a = p.transpose_a ? layout(p.in, p.K, p.M, a) : layout(p.in, p.M, p.K, a);
  made.b = p.transpose_b ? layout(p.in, p.N, p.K, b) : layout(p.in, p.K, p.N, b);
  made.c = layout(p.out, p.M, p.N, c);
}

// Allows split-K only with fp32 partial sums that are added in a fixed order.
cublasLtMatmulAlgo_t best_algorithm(cublasLtHandle_t handle, const Prepared& made, const Product& p) {
  cublasLtMatmulPreference_t preference = nullptr;
  cublas_check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes(p.M, p.N)));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_addend);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_c);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, made.operation, made.b, made.a, made.c,
                                                               made.c, preference, 1, &best, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0)
    fail(str("cuBLASLt has no algorithm for a product of ", p.M, " x ", p.N, " x ", p.K, " from ", p.in,
             " to ", p.out, ": ", cublasLtGetStatusString(status)));
  return best.algo;
}

std::mutex mutex;  // guards the caches below

cublasLtHandle_t handle_of(Device device) {
  static std::map<int, cublasLtHandle_t> handles;
  cublasLtHandle_t& handle = handles[device.index];
  if (!handle) cublas_check(cublasLtCreate(&handle), "cublasLtCreate");
  return handle;
}

const Prepared& prepared(const Product& product) {
  static std::map<Product, Prepared> products;
  const auto [place, is_new] = products.try_emplace(product);
  Prepared& made = place->second;
  if (is_new) {
    describe(made, product);
    made.algorithm = best_algorithm(handle_of(product.device), made, product);
  }
  return made;
}

void multiply(Stream& stream, const Gemm& g, const Tensor& workspace) {
  const std::lock_guard lock(mutex);
  const Prepared& made = prepared(product_of(stream.device(), g));
  const float beta = addend_of(g).empty() ? 0.0f : 1.0f;
  if (!g.bias.empty())
    set(made.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(g.bias.data));
  cublas_check(
      cublasLtMatmul(handle_of(stream.device()), made.operation, &g.alpha, g.b.data, made.b, g.a.data, made.a,
                     &beta, addend_or_c(g).data, made.c, g.c.data, made.c, &made.algorithm, workspace.data,
                     static_cast<size_t>(workspace.bytes()), static_cast<cudaStream_t>(stream.native())),
      "cublasLtMatmul");
}

}  // namespace

void prepare_gemm(Device device) {
  const std::lock_guard lock(mutex);
  handle_of(device);
}

void gemm(Stream& stream, Arena& scratch, const Gemm& g) {
  const ArenaScope scope(scratch);
  const Tensor workspace = scratch.alloc(DType::u8, {workspace_bytes(g.c.shape[0], g.c.shape[1])});
  Gemm with = g;
  if (!g.bias.empty() && g.bias.dtype != g.c.dtype) {  // cuBLASLt needs a bias in the dtype of c
    with.bias = scratch.alloc(g.c.dtype, g.bias.shape);
    flatshard::cast(stream, {.y = with.bias, .x = g.bias});
  }
  if (!stream.planning()) multiply(stream, with, workspace);
}

}  // namespace flatshard::cuda
