// cuBLASLt on the machine: the functions that a matrix product by the heuristics needs, for column-major
// matrices of fp32, bf16, f16, or with scales E4M3. A product is an operation of its stream like a copy, and
// every byte that it reads or writes is checked; a loop in fp32 computes the values. An algorithm is valid
// only for the problem and the alignment that it was selected for, in any process. Of the candidates for a
// problem, the second is the fastest.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <cublasLt.h>

#include "ptx_vm/counts.h"
#include "ptx_vm/device.h"
#include "ptx_vm/numbers.h"
#include "ptx_vm/piece.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/report.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint64_t kWorkspaceBytes = 4096;         // requested by an algorithm if allowed
constexpr uint64_t kTicks[] = {3000, 1000, 2000};  // that a product takes, by candidate

using ScaleMode = int32_t;  // a cublasLtMatmulMatrixScale_t; 0: one scale

constexpr int64_t kScaled = 128;  // elements in a row that share a scale, and rows of a block

struct Description {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias_type = CUDA_R_32F;
  const void* bias = nullptr;
  int32_t multiprocessors = 0;
  std::array<ScaleMode, 2> scale_modes{};  // of A and B
  std::array<const void*, 2> scales{};
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
  std::array<ScaleMode, 2> scale_modes;
  bool operator==(const Problem&) const = default;
  bool is_fp8() const { return a_layout.type == CUDA_R_8F_E4M3; }
};
struct Algorithm {
  Problem problem;
  std::array<uint32_t, 4> alignment;
  uint64_t workspace, candidate;
};

// Everything that determines the algorithm, as one number.
uint64_t fingerprint(const Algorithm& a) {
  const Problem& p = a.problem;
  std::string text =
      str(p.compute, ' ', p.scale, ' ', p.a, ' ', p.b, ' ', p.epilogue, ' ', p.bias_type.value_or(CUDA_R_8I),
          ' ', a.workspace, ' ', a.candidate, ' ', p.scale_modes[0], ' ', p.scale_modes[1]);
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
  const auto extents = [](const Layout& l, cublasOperation_t operation) {
    return operation == CUBLAS_OP_T ? std::pair(l.columns, l.rows) : std::pair(l.rows, l.columns);
  };
  const auto [M, K] = extents(a, d.a);
  const auto [K_of_b, N] = extents(b, d.b);
  check(K == K_of_b && c.rows == M && c.columns == N, "a product of ", M, " x ", K, " and ", K_of_b, " x ", N,
        " matrices in one of ", c.rows, " x ", c.columns);
  const bool has_bias = d.epilogue == CUBLASLT_EPILOGUE_BIAS;
  return {
      d.compute, d.scale, d.a, d.b,          d.epilogue, has_bias ? std::optional(d.bias_type) : std::nullopt,
      a,         b,       c,   d.scale_modes};
}

// On sm_90 the factors of a product in FP8 lie along the summed dimension, and two of blocks are not
// supported.
void check_fp8(const Problem& p) {
  check(p.a == CUBLAS_OP_T && p.b == CUBLAS_OP_N, "a product in FP8 must have A transposed and B not");
  constexpr ScaleMode kRows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F,
                      kBlocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  const auto [a, b] = p.scale_modes;
  check((a == 0 && b == 0) || (a == kRows && (b == kRows || b == kBlocks)) || (a == kBlocks && b == kRows),
        "scale modes ", a, " and ", b);
  for (const uint64_t extent : {p.a_layout.rows, p.a_layout.columns, p.b_layout.columns})
    check(extent % 16 == 0, "an extent of a product in FP8 is ", extent, ", must be a multiple of 16");
}

void check_supported(const Problem& p) {
  const auto is_wide = [](cudaDataType_t type) {
    return type == CUDA_R_32F || type == CUDA_R_16BF || type == CUDA_R_16F;
  };
  check(is_wide(p.a_layout.type) || p.is_fp8(), "factors of type ", int{p.a_layout.type});
  check(is_wide(p.c_layout.type), "a product of type ", int{p.c_layout.type});
  if (p.is_fp8()) check_fp8(p);
  check(p.is_fp8() || p.scale_modes == std::array<ScaleMode, 2>{}, "scales of factors that are not FP8");
  const bool is_tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  check((p.compute == CUBLAS_COMPUTE_32F || is_tf32) && p.scale == CUDA_R_32F, "sums must be fp32");
  check(!is_tf32 || p.a_layout.type == CUDA_R_32F, "TF32 for factors of type ", int{p.a_layout.type});
  check(p.a_layout.type == p.b_layout.type, "the factors have different types");
  check(p.is_fp8() || p.c_layout.type == p.a_layout.type || p.c_layout.type == CUDA_R_32F,
        "a product of type ", int{p.c_layout.type}, " of factors of type ", int{p.a_layout.type});
  check(p.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.epilogue == CUBLASLT_EPILOGUE_BIAS, "epilogue ",
        int{p.epilogue});
  check(!p.bias_type || *p.bias_type == p.c_layout.type, "the bias must have the type of the product, ",
        int{p.c_layout.type});
  for (const Layout* l : {&p.a_layout, &p.b_layout, &p.c_layout})
    check(l->rows > 0 && l->columns > 0 && l->pitch >= static_cast<int64_t>(l->rows), "a matrix of ", l->rows,
          " x ", l->columns, " with columns ", l->pitch, " apart");
}

// A column-major matrix in memory, read as its transpose: rows of `columns` elements, `pitch` elements apart.
struct Matrix {
  void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  int64_t rows = 0, columns = 0, pitch = 0;
  const float* scales = nullptr;  // null: none
  ScaleMode scale_mode = 0;

  int64_t scaled_parts() const { return (columns + kScaled - 1) / kScaled; }
  int64_t aligned_parts() const { return (scaled_parts() + 3) / 4 * 4; }  // of the scales of blocks
  int64_t scale_count() const {
    return scale_mode == 0 ? 1
           : scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
               ? rows * scaled_parts()
               : (rows + kScaled - 1) / kScaled * aligned_parts();
  }
  float scale(int64_t row, int64_t column) const {
    if (!scales) return 1;
    return scales[scale_mode == 0 ? 0
                  : scale_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                      ? column / kScaled * rows + row
                      : row / kScaled * aligned_parts() + column / kScaled];
  }
};

Matrix matrix_of(const void* data, const Layout& l) {
  return {const_cast<void*>(data), l.type, static_cast<int64_t>(l.columns), static_cast<int64_t>(l.rows),
          l.pitch};
}

// Factor A (0) or B (1) of a description.
Matrix factor_of(const void* data, const Layout& l, const Description& d, size_t which) {
  Matrix m = matrix_of(data, l);
  m.scales = static_cast<const float*>(d.scales[which]);
  m.scale_mode = d.scale_modes[which];
  return m;
}

// Calls visit(values) with the memory as the C++ type of its elements.
template <class Visitor>
void with_values(void* data, cudaDataType_t type, Visitor&& visit) {
  if (type == CUDA_R_32F)
    visit(static_cast<float*>(data));
  else if (type == CUDA_R_16BF)
    visit(static_cast<BFloat*>(data));
  else
    visit(static_cast<Half*>(data));
}

float element(void* data, cudaDataType_t type, int64_t i) {
  float value = 0;
  with_values(data, type, [&](const auto* values) { value = to_float(values[i]); });
  return value;
}

// Rounded to TF32 as by tensor cores: 11 significant bits, ties away from zero.
float to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & ~0x1fffu);
}

// The rows and columns of a block of a product, whose sums are kept in registers.
constexpr int64_t kBlockRows = 4, kBlockColumns = 32;

int64_t rounded_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// A factor in fp32, extended by zeros to whole blocks.
struct Factor {
  Factor(const Matrix& m, bool is_transposed, bool is_tf32, int64_t block_rows, int64_t block_columns)
      : rows(rounded_up(is_transposed ? m.columns : m.rows, block_rows)),
        columns(rounded_up(is_transposed ? m.rows : m.columns, block_columns)),
        values(rows * columns) {
    const auto take = [&](const auto* from) {
      for (int64_t row = 0; row < m.rows; ++row)
        for (int64_t column = 0; column < m.columns; ++column) {
          const float x = to_float(from[row * m.pitch + column]) * m.scale(row, column);
          values[is_transposed ? column * columns + row : row * columns + column] = is_tf32 ? to_tf32(x) : x;
        }
    };
    m.type == CUDA_R_8F_E4M3 ? take(static_cast<const Fp8*>(m.data)) : with_values(m.data, m.type, take);
  }
  int64_t rows, columns;
  std::vector<float> values;
};

using Block = std::array<std::array<float, kBlockColumns>, kBlockRows>;

// The sums of products of kBlockRows rows of a and kBlockColumns columns of b, added in the order of k.
Block block_of(const Factor& a, const Factor& b, int64_t row, int64_t column) {
  Block sums{};
  const float* left = a.values.data() + row * a.columns;
  const float* right = b.values.data() + column;
  for (int64_t k = 0; k < a.columns; ++k, right += b.columns)
    for (int64_t r = 0; r < kBlockRows; ++r)
      for (int64_t c = 0; c < kBlockColumns; ++c) sums[r][c] += left[r * a.columns + k] * right[c];
  return sums;
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

size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 ? 1 : 2; }

Piece memory_of(const Matrix& m) {
  const size_t size = bytes_of(m.type), rows = m.rows, width = m.columns * size;
  if (m.pitch == m.columns) return piece_of(m.data, width * rows);
  return {static_cast<unsigned char*>(m.data), m.pitch * size, width, rows};
}

// The checked arguments of a call: c = alpha a b + addend + bias. In memory, read as rows, a is cuBLASLt's
// second factor.
struct Call {
  Algorithm algorithm;
  Matrix a, b, c, addend{};  // the addend is like c, or has no data
  float alpha;
  void* bias = nullptr;  // of each column, in the type of c
  Piece workspace;

  std::vector<Piece> reads() const {
    std::vector<Piece> all{memory_of(a), memory_of(b)};
    if (bias) all.push_back(piece_of(bias, c.columns * bytes_of(c.type)));
    for (const Matrix* m : {&a, &b})
      if (m->scales) all.push_back(piece_of(const_cast<float*>(m->scales), m->scale_count() * sizeof(float)));
    if (addend.data) all.push_back(memory_of(addend));
    return all;
  }
  // Of the matrices, each read or written once.
  uint64_t bytes() const {
    uint64_t all = memory_of(c).bytes();
    for (const Piece& p : reads()) all += p.bytes();
    return all;
  }
  std::vector<Piece> writes() const { return {memory_of(c), workspace}; }

  // Sums in fp32, and rounds once.
  void multiply() const {
    const Problem& p = algorithm.problem;
    const bool is_tf32 = p.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const Factor left(a, p.b == CUBLAS_OP_T, is_tf32, kBlockRows, 1);
    const Factor right(b, p.a == CUBLAS_OP_T, is_tf32, 1, kBlockColumns);
    for (int64_t row = 0; row < c.rows; row += kBlockRows)
      for (int64_t column = 0; column < c.columns; column += kBlockColumns)
        store(block_of(left, right, row, column), row, column);
  }

  void store(const Block& sums, int64_t row, int64_t column) const {
    with_values(c.data, c.type, [&]<class T>(T* to) {
      for (int64_t i = row; i < std::min(row + kBlockRows, c.rows); ++i)
        for (int64_t j = column; j < std::min(column + kBlockColumns, c.columns); ++j) {
          float value = alpha * sums[i - row][j - column];
          if (addend.data) value += element(addend.data, c.type, i * c.pitch + j);
          if (bias) value += element(bias, c.type, j);
          to[i * c.pitch + j] = from_float<T>(value);
        }
    });
  }

  void run(Activity& self) const {
    Past past(timeline().begin(self));
    for (const Piece& p : reads()) {
      touch(p, past, false);
      check_written(p, past);
    }
    for (const Piece& p : writes()) touch(p, past, true);
    multiply();
    product_ticks() += kTicks[algorithm.candidate];
    const Piece written = memory_of(c);
    for (size_t row = 0; row < written.height; ++row) heap().mark_written(written.row(row), written.width);
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

cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{compute, scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle) {
  delete reinterpret_cast<Description*>(handle);
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
      case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
        return assign(d.scale_modes[0], value, bytes);
      case CUBLASLT_MATMUL_DESC_B_SCALE_MODE:
        return assign(d.scale_modes[1], value, bytes);
      case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return assign(d.scales[0], value, bytes);
      case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return assign(d.scales[1], value, bytes);
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

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete reinterpret_cast<Layout*>(handle);
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
    check(!problem.is_fp8() || (description.scales[0] && description.scales[1]),
          "a product in FP8 without the scales of both factors");
    const float factor = *static_cast<const float*>(alpha), kept = *static_cast<const float*>(beta);
    check(kept == 0 || kept == 1, "a scaled C is not supported");
    Call call{.algorithm = algorithm,
              .a = factor_of(B, problem.b_layout, description, 1),
              .b = factor_of(A, problem.a_layout, description, 0),
              .c = matrix_of(D, problem.c_layout),
              .alpha = factor,
              .bias = problem.bias_type ? const_cast<void*>(description.bias) : nullptr,
              .workspace = piece_of(workspace, algorithm.workspace)};
    if (kept == 1) call.addend = matrix_of(C, problem.c_layout);
    for (const Piece& p : call.reads()) check_range(p, "a matrix product");
    for (const Piece& p : call.writes()) check_range(p, "a matrix product");
    for (const Piece& p : call.reads()) check(p.is_on_device(), name_of(p), " is not on the device");
    if (options().counts) options().counts->add_product(call.bytes());
    const int64_t terms = problem.b == CUBLAS_OP_T ? call.a.rows : call.a.columns;
    streams().enqueue(queue_of(stream),
                      str("matrix product ", call.c.rows, " x ", call.c.columns, " x ", terms),
                      [call](Activity& self) { call.run(self); });
  });
}
}

}  // namespace flatshard::ptx_vm
