// cuBLASLt on the machine: the functions that the project calls, for column-major matrices. A product
// is an operation of its stream like a copy, and every byte that it reads or writes is checked; the CPU twin
// computes the values. An algorithm is valid only for the problem and the alignment that it was selected for,
// in any process. Of the candidates for a problem, the second is the fastest.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include <cublasLt.h>

#include "kernels/gemm.h"
#include "tests/ptx_vm/counts.h"
#include "tests/ptx_vm/device.h"
#include "tests/ptx_vm/piece.h"
#include "tests/ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/report.h"
#include "tests/ptx_vm/state.h"
#include "tests/ptx_vm/streams.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint64_t kWorkspaceBytes = 4096;         // requested by an algorithm if allowed
constexpr uint64_t kTicks[] = {3000, 1000, 2000};  // that a product takes, by candidate

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias_type = CUDA_R_32F;
  const void* bias = nullptr;
  int32_t multiprocessors = 0;
};

struct Layout {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t pitch;
  bool operator==(const Layout&) const = default;
};

struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 0;
  std::array<uint32_t, 4> alignment{256, 256, 256, 256};  // of A, B, C, D
};

// The problem that an algorithm is valid for.
struct Problem {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a, b;
  cublasLtEpilogue_t epilogue;
  std::optional<cudaDataType_t> bias_type;
  Layout a_layout, b_layout, c_layout;
  bool operator==(const Problem&) const = default;
};
struct Algorithm {
  Problem problem;
  std::array<uint32_t, 4> alignment;
  uint64_t workspace, candidate;
};

// Everything that determines the algorithm, as one number.
uint64_t fingerprint(const Algorithm& a) {
  const Problem& p = a.problem;
  std::string text = str(p.compute, ' ', p.scale, ' ', p.a, ' ', p.b, ' ', p.epilogue, ' ',
                         p.bias_type.value_or(CUDA_R_8I), ' ', a.workspace, ' ', a.candidate);
  for (const Layout* l : {&p.a_layout, &p.b_layout, &p.c_layout})
    text += str(' ', l->type, ' ', l->rows, ' ', l->columns, ' ', l->pitch);
  for (const uint32_t bytes : a.alignment) text += str(' ', bytes);
  return std::hash<std::string>{}(text) | 1;
}

cublasLtMatmulAlgo_t serialized(const Algorithm& a) {
  cublasLtMatmulAlgo_t algo{};
  algo.data[0] = fingerprint(a);
  algo.data[1] = uint64_t{a.alignment[0]} << 32 | a.alignment[1];
  algo.data[2] = uint64_t{a.alignment[2]} << 32 | a.alignment[3];
  algo.data[3] = a.workspace;
  algo.data[4] = a.candidate;
  return algo;
}

template <class Work>
cublasStatus_t attempt(Work&& work) {
  const int code = guarded(work);
  return code == cudaSuccess               ? CUBLAS_STATUS_SUCCESS
         : code == cudaErrorIllegalAddress ? CUBLAS_STATUS_EXECUTION_FAILED
                                           : CUBLAS_STATUS_INVALID_VALUE;
}

template <class T>
void assign(T& place, const void* value, size_t bytes) {
  check(value && bytes == sizeof(T), "an attribute of ", bytes, " bytes, must be ", sizeof(T));
  std::memcpy(&place, value, bytes);
}

Problem problem_of(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                   const Layout& out) {
  check(c == out, "C and D have different layouts");
  const bool has_bias = d.epilogue == CUBLASLT_EPILOGUE_BIAS;
  return {d.compute, d.scale, d.a, d.b, d.epilogue, has_bias ? std::optional(d.bias_type) : std::nullopt,
          a,         b,       c};
}

DType dtype_of(cudaDataType_t type) {
  check(type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F, "matrices of type ", int{type});
  return type == CUDA_R_32F ? DType::f32 : type == CUDA_R_16BF ? DType::bf16 : DType::f16;
}

void check_supported(const Problem& p) {
  const bool is_tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  check((p.compute == CUBLAS_COMPUTE_32F || is_tf32) && p.scale == CUDA_R_32F, "sums must be fp32");
  check(!is_tf32 || p.a_layout.type == CUDA_R_32F, "TF32 for factors of type ", int{p.a_layout.type});
  check(p.a_layout.type == p.b_layout.type, "the factors have different types");
  check(p.c_layout.type == p.a_layout.type || p.c_layout.type == CUDA_R_32F, "a product of type ",
        int{p.c_layout.type}, " of factors of type ", int{p.a_layout.type});
  check(p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.epilogue == CUBLASLT_EPILOGUE_BIAS, "epilogue ",
        int{p.epilogue});
  check(!p.bias_type || *p.bias_type == p.c_layout.type, "the bias must have the type of the product, ",
        int{p.c_layout.type});
  for (const Layout* l : {&p.a_layout, &p.b_layout, &p.c_layout})
    check(l->rows > 0 && l->columns > 0 && l->pitch >= static_cast<int64_t>(l->rows), "a matrix of ", l->rows,
          " x ", l->columns, " with columns ", l->pitch, " apart");
}

// A column-major matrix is the transpose of a row-major one, so the factors are swapped.
Gemm gemm_of(const Problem& p) {
  const auto ours = [](const Layout& l) {
    return Tensor{nullptr,
                  dtype_of(l.type),
                  {static_cast<int64_t>(l.columns), static_cast<int64_t>(l.rows)},
                  Device::cpu()};
  };
  Gemm g{.c = ours(p.c_layout),
         .a = ours(p.b_layout),
         .b = ours(p.a_layout),
         .transpose_a = p.b == CUBLAS_OP_T,
         .transpose_b = p.a == CUBLAS_OP_T,
         .a_stride = p.b_layout.pitch,
         .b_stride = p.a_layout.pitch,
         .c_stride = p.c_layout.pitch};
  return g;
}

// Rounded to TF32 as by tensor cores: 11 significant bits, ties away from zero.
float to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu);
}

// The factor's values, rounded, in memory of their own.
Tensor rounded(const Tensor& factor, int64_t stride, std::vector<float>& room) {
  const float* values = factor.as<float>();
  room.resize(static_cast<size_t>(factor.shape[0] * stride));
  for (int64_t row = 0; row < factor.shape[0]; ++row)
    std::transform(values + row * stride, values + row * stride + factor.shape[1],
                   room.begin() + row * stride, to_tf32);
  Tensor copy = factor;
  copy.data = room.data();
  return copy;
}

// Our bias is of the factors' dtype; a wider one is added by hand.
void multiply(const Algorithm& algorithm, Gemm g, const Tensor& bias) {
  std::vector<float> a, b;
  if (algorithm.problem.compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
    g.a = rounded(g.a, g.a_stride, a);
    g.b = rounded(g.b, g.b_stride, b);
  }
  static StreamGroup* const streams = new StreamGroup(Device::cpu());
  static Stream& stream = streams->add("products");
  const bool by_hand = !bias.empty() && bias.dtype != g.a.dtype;
  if (!by_hand) g.bias = bias;
  Arena scratch("products", Device::cpu());
  StreamGroup planning(Device::cpu(), {.planning = true});
  gemm(planning.add("products"), scratch, g);
  scratch.commit();
  gemm(stream, scratch, g);
  const int64_t N = g.c.shape[1];
  if (by_hand)
    for (int64_t i = 0; i < g.c.size(); ++i)
      g.c.as<float>()[i / N * g.c_stride + i % N] += bias.as<float>()[i % N];
}

void check_written(const Piece& p, const Past& past) {
  const Allocation* a = p.home();
  if (!a) return;
  for (size_t row = 0; row < p.height; ++row) {
    const uint64_t begin = reinterpret_cast<uint64_t>(p.row(row)) - a->begin;
    for (uint64_t i = begin; i < begin + p.width; ++i)
      if (!(a->state[i] & kWritten))
        report_operation(FindingKind::uninitialised_read, past.now().what,
                         str("reads ", describe_address(a->begin + i), ", which was never written"));
  }
}

Piece matrix(const Tensor& t, int64_t stride) {
  if (stride == t.shape[-1]) return piece_of(t.data, static_cast<size_t>(t.bytes()));
  const auto size = static_cast<size_t>(size_of(t.dtype));
  return {static_cast<unsigned char*>(t.data), static_cast<size_t>(stride) * size,
          static_cast<size_t>(t.shape[-1]) * size, static_cast<size_t>(t.rows())};
}

// The checked arguments of a call.
struct Call {
  Algorithm algorithm;
  Gemm gemm;
  Tensor bias;
  Piece workspace;

  std::vector<Piece> reads() const {
    std::vector<Piece> all{matrix(gemm.a, gemm.a_stride), matrix(gemm.b, gemm.b_stride)};
    if (!bias.empty()) all.push_back(matrix(bias, bias.size()));
    if (const Tensor& addend = addend_of(gemm); !addend.empty()) all.push_back(matrix(addend, gemm.c_stride));
    return all;
  }
  // Of the matrices, each read or written once.
  uint64_t bytes() const {
    uint64_t all = matrix(gemm.c, gemm.c_stride).bytes();
    for (const Piece& p : reads()) all += p.bytes();
    return all;
  }
  std::vector<Piece> writes() const { return {matrix(gemm.c, gemm.c_stride), workspace}; }

  void run(Activity& self) const {
    Past past(timeline().begin(self));
    for (const Piece& p : reads()) {
      touch(p, past, false);
      check_written(p, past);
    }
    for (const Piece& p : writes()) touch(p, past, true);
    multiply(algorithm, gemm, bias);
    product_ticks() += kTicks[algorithm.candidate];
    const Piece c = matrix(gemm.c, gemm.c_stride);
    for (size_t row = 0; row < c.height; ++row) heap().mark_written(c.row(row), c.width);
    std::memset(workspace.data, 0xff, workspace.bytes());  // so that no code relies on its content
  }
};

Algorithm algorithm_for(const Problem& problem, const cublasLtMatmulAlgo_t* algo) {
  check(algo && algo->data[0] != 0, "not an algorithm");
  const auto high = [&](int i) { return static_cast<uint32_t>(algo->data[i] >> 32); };
  const auto low = [&](int i) { return static_cast<uint32_t>(algo->data[i]); };
  const Algorithm wanted{.problem = problem,
                         .alignment = {high(1), low(1), high(2), low(2)},
                         .workspace = algo->data[3],
                         .candidate = algo->data[4]};
  check(fingerprint(wanted) == algo->data[0], "the algorithm was chosen for another problem");
  return wanted;
}

void check_alignment(const Algorithm& algorithm, std::array<const void*, 4> data) {
  for (size_t i = 0; i < data.size(); ++i)
    check(reinterpret_cast<uintptr_t>(data[i]) % algorithm.alignment[i] == 0, "matrix ", "ABCD"[i],
          " is not at a multiple of the ", algorithm.alignment[i],
          " bytes that the algorithm was chosen for");
}

template <class T>
T& as(void* handle) {
  check(handle != nullptr, "the cuBLASLt handle is null");
  return *static_cast<T*>(handle);
}

}  // namespace

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : last_error_text().c_str();
}

size_t cublasLtGetVersion() { return CUBLAS_VERSION; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int only;
  *handle = reinterpret_cast<cublasLtHandle_t>(&only);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t name, const void* value,
                                              size_t bytes) {
  return attempt([&] {
    auto& d = as<Description>(handle);
    switch (name) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return assign(d.a, value, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return assign(d.b, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return assign(d.epilogue, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return assign(d.bias_type, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return assign(d.bias, value, bytes);
      case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        assign(d.multiprocessors, value, bytes);
        return check(0 < d.multiprocessors && d.multiprocessors <= kProcessors, "a product on ",
                     d.multiprocessors, " multiprocessors");
      default:
        fail(str("the PTX machine does not support attribute ", int{name}, " of a product"));
    }
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t pitch) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type, rows, columns, pitch});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t name, void* value, size_t,
                                                size_t* written) {
  return attempt([&] {
    const auto& layout = as<Layout>(handle);
    check(name == CUBLASLT_MATRIX_LAYOUT_COLS || name == CUBLASLT_MATRIX_LAYOUT_LD,
          "the PTX machine does not support attribute ", int{name}, " of a layout");
    const uint64_t number =
        name == CUBLASLT_MATRIX_LAYOUT_COLS ? layout.columns : static_cast<uint64_t>(layout.pitch);
    std::memcpy(value, &number, *written = sizeof(number));
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete reinterpret_cast<Preference*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  return attempt([&] {
    auto& p = as<Preference>(handle);
    switch (name) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return assign(p.workspace, value, bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return assign(p.reductions, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return assign(p.alignment[0], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return assign(p.alignment[1], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return assign(p.alignment[2], value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return assign(p.alignment[3], value, bytes);
      default:
        fail(str("the PTX machine does not support attribute ", int{name}, " of a preference"));
    }
  });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  return attempt([&] {
    check(wanted >= 1, wanted, " algorithms");
    const auto& p = as<Preference>(preference);
    const Problem problem =
        problem_of(as<Description>(operation), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d));
    check_supported(problem);
    for (uint64_t candidate = 0; candidate < std::size(kTicks) && *found < wanted; ++candidate) {
      const Algorithm algorithm{.problem = problem,
                                .alignment = p.alignment,
                                .workspace = std::min(p.workspace, kWorkspaceBytes),
                                .candidate = candidate};
      cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
      result = {};
      result.algo = serialized(algorithm);
      result.workspaceSize = algorithm.workspace;
      result.state = CUBLAS_STATUS_SUCCESS;
    }
  });
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  try {
    const Problem problem =
        problem_of(as<Description>(operation), as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d));
    *result = {};
    result->workspaceSize = algorithm_for(problem, algo).workspace;
    return result->state = CUBLAS_STATUS_SUCCESS;
  } catch (const Error&) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* A, cublasLtMatrixLayout_t a, const void* B,
                              cublasLtMatrixLayout_t b, const void* beta, const void* C,
                              cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  return attempt([&] {
    const auto& description = as<Description>(operation);
    const Problem problem =
        problem_of(description, as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(d));
    const Algorithm algorithm = algorithm_for(problem, algo);
    check_alignment(algorithm, {A, B, C, D});
    check(workspace_bytes >= algorithm.workspace, "a workspace of ", workspace_bytes, " bytes, must be ",
          algorithm.workspace);
    const float factor = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
    check(kept == 0 || kept == 1, "a scaled C is not supported");
    Call call{.algorithm = algorithm,
              .gemm = gemm_of(problem),
              .bias = {},
              .workspace = piece_of(workspace, algorithm.workspace)};
    call.gemm.a.data = const_cast<void*>(B);
    call.gemm.b.data = const_cast<void*>(A);
    call.gemm.c.data = D;
    call.gemm.accumulate = kept == 1 && C == D;
    if (kept == 1 && C != D) {
      call.gemm.addend = call.gemm.c;
      call.gemm.addend.data = const_cast<void*>(C);
    }
    call.gemm.alpha = factor;
    if (problem.bias_type)
      call.bias = {const_cast<void*>(description.bias),
                   dtype_of(*problem.bias_type),
                   {call.gemm.c.shape[1]},
                   Device::cpu()};
    for (const Piece& p : call.reads()) check_range(p, "a matrix product");
    for (const Piece& p : call.writes()) check_range(p, "a matrix product");
    for (const Piece& p : call.reads()) check(p.is_on_device(), name_of(p), " is not on the device");
    if (options().counts) options().counts->add_product(call.bytes());
    streams().enqueue(queue_of(stream), str("matrix product ", call.gemm.c.shape),
                      [call](Activity& self) { call.run(self); });
  });
}
}

}  // namespace flatshard::ptx_vm
