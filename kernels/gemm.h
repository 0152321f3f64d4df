#pragma once
// Row-major matrix product:  c = alpha a b, plus a bias for each row, plus an addend like c, or the previous
// c with accumulate. Operands are f32, bf16 or f16 of the same dtype; products are summed in fp32 and rounded
// once, to the dtype of c. A matrix may be columns of wider rows (kernels/packed.h). A linear layer with
// weight w (N, K) uses it in three ways:
//   y = x w^T + bias + r    {.c = y, .a = x, .b = w, .bias = bias, .addend = r, .transpose_b = true}
//   dx = dy w               {.c = dx, .a = dy, .b = w}
//   dw += dy^T x            {.c = dw, .a = dy, .b = x, .transpose_a = true, .accumulate = true}
// Each row of c depends on that row of a alone. c is cut into tiles by a rule that depends only on the
// shapes, and each tile is one product on one thread, so the bits do not depend on the number of threads.
// They do depend on the number of rows and on a row's place: oneDNN sums in another order at the ends of a
// tile. Only products of at most kFewRows rows (gemm_rows.h), which read b in place, have one order for any
// number of rows. With K = 0 the product is zero. f16 operands are widened to f32 in scratch and multiplied
// there; bf16 operands too, tile by tile, if the processor has no bf16 instructions.
//
// On a GPU cuBLASLt multiplies, by one algorithm for each shape and alignment, or the project's own kernel
// (use_product_kernels), whose sums have one order for any number of rows; f32 is rounded to TF32 only if
// tf32 is set.

#include <algorithm>
#include <cstdint>

#include "kernels/product_end.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct Gemm {
  Tensor c;         // (M, N) f32, or of a's dtype
  Tensor a;         // (M, K), or (K, M) with transpose_a
  Tensor b;         // (K, N), or (N, K) with transpose_b
  Tensor bias{};    // (N) of a's dtype, or empty
  Tensor addend{};  // (M, N) like c, or empty; not c itself
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;  // adds the previous c, without another addend
  float alpha = 1;          // must be 1 with a bias
  bool tf32 = false;        // allows rounding f32 operands to TF32, with 11 significant bits, on a GPU
  // Elements between rows in memory; 0: rows are contiguous. c_stride is also the stride of the addend.
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  ProductEnd end{};
};

// The tensor that is added to the product: c itself, another one, or an empty one.
inline const Tensor& addend_of(const Gemm& g) { return g.accumulate ? g.c : g.addend; }

// The elements between the rows of each matrix.
struct GemmStrides {
  int64_t a, b, c;
};
GemmStrides strides_of(const Gemm& g);

// db += or = column sums of dy. Sums over fixed blocks of rows are added in order.
struct BiasBackward {
  Tensor db;               // (N) f32
  Tensor dy;               // (rows, N)
  bool accumulate = true;  // false: db is written
  int64_t dy_stride = 0;   // elements between rows; 0: N
};

void gemm(Stream& stream, Arena& scratch, const Gemm& g);
void bias_backward(Stream& stream, Arena& scratch, const BiasBackward& a);
// Makes later products leave this many multiprocessors of a GPU to other work, such as NCCL's kernels. The
// best algorithms, and with them the last bits, depend on it.
void spare_multiprocessors(Device device, int count);
// Selects whose kernel multiplies on a GPU: cuBLASLt's; or, of 16-bit matrices on sm_90, the project's own,
// where it supports the product (gemm_sm90.h). Their sums over K have different orders.
enum class ProductKernels { cublaslt, own };
void use_product_kernels(ProductKernels kernels);
ProductKernels product_kernels();
bool has_own_products(Device device);  // whether the project's own kernel runs on it
// Set in the flags of a recorded product that the project's kernel computes.
inline constexpr int64_t kFlagOwn = 32;
// Initializes the library for a device; otherwise the first product would.
void prepare_gemm(Device device);

double min_bytes(const Gemm& g);
double min_bytes(const BiasBackward& a);
double flops(const Gemm& g);
double flops(const BiasBackward& a);

namespace cuda {
// The bounds of cuBLASLt's workspace for partial sums: the size that the fast kernels of sm_90 need, and for
// small products, which are split most, this many partial results.
constexpr int64_t kMaxWorkspace = int64_t{32} << 20, kMaxParts = 32;
constexpr int64_t workspace_bytes(int64_t M, int64_t N) {
  return std::min(kMaxWorkspace, kMaxParts * M * N * int64_t{sizeof(float)});
}

void spare_multiprocessors(Device device, int count);
int product_multiprocessors(Device device);  // how many multiprocessors products may use
void prepare_gemm(Device device);
void gemm(Stream& stream, const Gemm& g, const Tensor& workspace);  // the bias must have the dtype of c
void empty_product(Stream& stream, const Gemm& g);                  // K = 0
void bias_backward(Stream& stream, const BiasBackward& a, const Tensor& partials);
}  // namespace cuda

}  // namespace flatshard
