// Matrix products on the GPU with cuBLASLt. The library is column-major, so a row-major c = a b is computed
// as c^T = b^T a^T of the same memory.

#include <algorithm>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <source_location>
#include <vector>

#include <cublasLt.h>

#include "kernels/gemm.h"
#include "kernels/tuned_products.h"
#include "runtime/check.h"
#include "runtime/gpu.h"
#include "runtime/stopwatch.h"

namespace flatshard::cuda {
namespace {

constexpr uint32_t kBestAlignment = 256;  // higher alignments do not change the algorithm

void cublas_check(cublasStatus_t status, const char* what,
                  std::source_location where = std::source_location::current()) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    fail(str(what, ": ", cublasLtGetStatusString(status)), where);
}

cudaDataType type_of(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_16F;
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

// The operand C of cuBLASLt, which is read only if there is an addend.
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

// A product's description for cuBLASLt, and its best algorithm by cuBLASLt's heuristics. It is kept until the
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

// The layout of a row-major matrix, which is the column-major layout of its transpose.
cublasLtMatrixLayout_t layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  cublas_check(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<uint64_t>(columns),
                                          static_cast<uint64_t>(rows), stride),
               "cublasLtMatrixLayoutCreate");
  return made;
}

std::mutex mutex;  // guards the variables below

int32_t allowed_multiprocessors = 0;  // 0: all

void describe(Prepared& made, const Product& p) {
  // Without FAST_TF32, operands of fp32 products are not rounded.
  const cublasComputeType_t compute = p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublas_check(cublasLtMatmulDescCreate(&made.operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  // The first factor in cuBLASLt is b.
  set(made.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(made.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(made.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(made.operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.out));
  }
  if (allowed_multiprocessors > 0)
    set(made.operation, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, allowed_multiprocessors);
  const auto& [a, b, c] = p.strides;
  made.a = p.transpose_a ? layout(p.in, p.K, p.M, a) : layout(p.in, p.M, p.K, a);
  made.b = p.transpose_b ? layout(p.in, p.N, p.K, b) : layout(p.in, p.K, p.N, b);
  made.c = layout(p.out, p.M, p.N, c);
}

// The best algorithms by the heuristics of cuBLASLt, at most `most`, the best one first. Allows split-K only
// with fp32 partial sums that are added in a fixed order.
std::vector<cublasLtMatmulAlgo_t> best_algorithms(cublasLtHandle_t handle, const Prepared& made,
                                                  const Product& p, int most) {
  cublasLtMatmulPreference_t preference = nullptr;
  cublas_check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes(p.M, p.N)));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_addend);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_c);
  std::vector<cublasLtMatmulHeuristicResult_t> best(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, made.operation, made.b, made.a, made.c,
                                                               made.c, preference, most, best.data(), &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || found == 0)
    fail(str("cuBLASLt has no algorithm for a product of ", p.M, " x ", p.N, " x ", p.K, " from ", p.in,
             " to ", p.out, ": ", cublasLtGetStatusString(status)));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) algorithms.push_back(best[static_cast<size_t>(i)].algo);
  return algorithms;
}

// The name of a product in a file of timed algorithms.
std::string name_of(const Product& p) {
  return std::apply(
      [](int /*device*/, const auto&... values) {
        std::string name;
        ((name += str(name.empty() ? "" : " ", values)), ...);
        return name;
      },
      p.key());
}

cublasLtHandle_t handle_of(Device device) {
  static std::map<int, cublasLtHandle_t> handles;
  cublasLtHandle_t& handle = handles[device.index];
  if (!handle) cublas_check(cublasLtCreate(&handle), "cublasLtCreate");
  return handle;
}

std::set<Product> planned;  // products that planning streams have planned
TunedProducts tuned_products;

// Sets the timed algorithm of a product if there is one and cuBLASLt accepts it.
bool find_tuned(cublasLtHandle_t handle, const Product& p, Prepared& made) {
  const TunedProducts::Algorithm* const found = tuned_products.find(name_of(p));
  if (!found) return false;
  static_assert(sizeof(made.algorithm) == sizeof(*found));
  std::memcpy(&made.algorithm, found->data(), sizeof(made.algorithm));
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(handle, made.operation, made.b, made.a, made.c,
                                                        made.c, &made.algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS &&
         static_cast<int64_t>(result.workspaceSize) <= workspace_bytes(p.M, p.N);
}

std::map<Product, Prepared> products;

const Prepared& prepared(const Product& product) {
  const auto [place, is_new] = products.try_emplace(product);
  Prepared& made = place->second;
  if (is_new) {
    describe(made, product);
    const cublasLtHandle_t handle = handle_of(product.device);
    if (!find_tuned(handle, product, made))
      made.algorithm = best_algorithms(handle, made, product, 1).front();
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
  stream.launched();
}

// The bytes of a matrix with this layout.
int64_t bytes_of(cublasLtMatrixLayout_t layout, DType dtype) {
  uint64_t columns = 0;
  int64_t pitch = 0;
  size_t written = 0;
  cublas_check(cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &columns,
                                                sizeof(columns), &written),
               "cublasLtMatrixLayoutGetAttribute");
  cublas_check(
      cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_LD, &pitch, sizeof(pitch), &written),
      "cublasLtMatrixLayoutGetAttribute");
  return pitch * static_cast<int64_t>(columns) * size_of(dtype);
}

// A product on its own matrices, to time algorithms.
class Trial {
 public:
  Trial(const Product& p, Stream& stream) : stream_(stream), beta_(p.adds ? 1.0f : 0.0f), watch_(stream) {
    describe(made_, p);
    a_ = filled(p, bytes_of(made_.a, p.in));
    b_ = filled(p, bytes_of(made_.b, p.in));
    c_ = filled(p, bytes_of(made_.c, p.out));
    bias_ = filled(p, p.bias ? p.N * size_of(p.out) : 0);
    workspace_ = Memory(p.device, workspace_bytes(p.M, p.N));
    if (p.bias)
      set(made_.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(bias_.data()));
  }
  const Prepared& made() const { return made_; }

  // The shortest time of a few runs.
  double seconds(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) {
    constexpr int kRounds = 3, kRuns = 4;
    run(handle, algorithm);
    double best = INFINITY;
    for (int round = 0; round < kRounds; ++round) {
      watch_.start();
      for (int i = 0; i < kRuns; ++i) run(handle, algorithm);
      watch_.stop();
      best = std::min(best, watch_.seconds() / kRuns);
    }
    return best;
  }

 private:
  // Memory filled with small positive values of any dtype. Zeros would draw less power and run faster.
  Memory filled(const Product& p, int64_t bytes) {
    constexpr unsigned char kByte = 0x3c;
    Memory memory(p.device, bytes);
    fill_bytes(stream_, {memory.data(), DType::u8, {bytes}, p.device}, kByte);
    return memory;
  }

  void run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) {
    const float alpha = 1;
    cublas_check(
        cublasLtMatmul(handle, made_.operation, &alpha, b_.data(), made_.b, a_.data(), made_.a, &beta_,
                       c_.data(), made_.c, c_.data(), made_.c, &algorithm, workspace_.data(),
                       static_cast<size_t>(workspace_.bytes()), static_cast<cudaStream_t>(stream_.native())),
        "cublasLtMatmul");
  }

  Stream& stream_;
  float beta_;
  Stopwatch watch_;
  Prepared made_;
  Memory a_, b_, c_, bias_, workspace_;
};

}  // namespace

TunedProducts tuned_products_of(Device device, const std::string& text, const std::string& path) {
  return {gpu_name(device), str("cuBLASLt ", cublasLtGetVersion()), text, path};
}

void tune_products(Stream& stream, TunedProducts& tuned) {
  constexpr int kCandidates = 8;
  const std::lock_guard lock(mutex);
  for (const Product& p : planned) {
    if (p.device != stream.device() || tuned.find(name_of(p))) continue;
    const cublasLtHandle_t handle = handle_of(p.device);
    Trial trial(p, stream);
    double best = INFINITY;
    TunedProducts::Algorithm chosen{};
    for (const cublasLtMatmulAlgo_t& algorithm : best_algorithms(handle, trial.made(), p, kCandidates))
      if (const double seconds = trial.seconds(handle, algorithm); seconds < best) {
        best = seconds;
        std::memcpy(chosen.data(), &algorithm, sizeof(chosen));
      }
    tuned.add(name_of(p), chosen, 1e6 * best);
    stream.sync();
  }
  planned.clear();
}

void forget_planned_products() {
  const std::lock_guard lock(mutex);
  planned.clear();
}

void use_tuned_products(TunedProducts tuned) {
  const std::lock_guard lock(mutex);
  tuned_products = std::move(tuned);
  products.clear();
}

void spare_multiprocessors(Device device, int count) {
  const std::lock_guard lock(mutex);
  allowed_multiprocessors = count > 0 ? multiprocessors(device) - count : 0;
  products.clear();
}

int product_multiprocessors(Device device) {
  const std::lock_guard lock(mutex);
  return allowed_multiprocessors > 0 ? allowed_multiprocessors : multiprocessors(device);
}

void prepare_gemm(Device device) {
  const std::lock_guard lock(mutex);
  handle_of(device);
}

void gemm(Stream& stream, const Gemm& g, const Tensor& workspace) {
  if (!stream.planning()) return multiply(stream, g, workspace);
  const std::lock_guard lock(mutex);
  planned.insert(product_of(stream.device(), g));
}

}  // namespace flatshard::cuda
