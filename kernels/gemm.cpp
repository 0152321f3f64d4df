#include "kernels/gemm.h"

#include <atomic>

#include "build_config.h"
#include "kernels/elementwise.h"
#include "kernels/gemm_cut.h"
#include "kernels/gemm_rows.h"
#include "kernels/gemm_sm90.h"
#include "kernels/host_product.h"
#include "kernels/op.h"
#include "kernels/packed.h"
#include "kernels/parallel_write.h"
#include "kernels/row_blocks.h"
#include "kernels/simd.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

void check_gemm(const Gemm& g) {
  check(g.a.shape.rank() == 2 && g.b.shape.rank() == 2 && g.c.shape.rank() == 2, "gemm: a ", g.a.shape,
        ", b ", g.b.shape, " and c ", g.c.shape, " must be matrices");
  const auto [M, N, K] = extents_of(g);
  check(g.b.shape[g.transpose_b ? 1 : 0] == K && g.c.shape == Shape({M, N}), "gemm: c ", g.c.shape, " = a ",
        g.a.shape, g.transpose_a ? "^T" : "", " b ", g.b.shape, g.transpose_b ? "^T" : "",
        ": shapes do not fit");
  check(is_float(g.a.dtype) && g.b.dtype == g.a.dtype && (g.c.dtype == g.a.dtype || g.c.dtype == DType::f32),
        "gemm: c is ", g.c.dtype, ", a is ", g.a.dtype, ", b is ", g.b.dtype,
        "; a and b must have the same dtype, c that dtype or f32");
  check(g.bias.empty() || (g.bias.size() == N && g.bias.dtype == g.a.dtype), "gemm: bias is ", g.bias.dtype,
        " ", g.bias.shape, ", must be ", g.a.dtype, " (", N, ")");
  check(g.bias.empty() || g.alpha == 1, "gemm: alpha is ", g.alpha, ", must be 1 with a bias");
  check(g.addend.empty() || (g.addend.shape == g.c.shape && g.addend.dtype == g.c.dtype && !g.accumulate),
        "gemm: the addend is ", g.addend.dtype, " ", g.addend.shape, ", must be like c ", g.c.dtype, " ",
        g.c.shape, ", without accumulate");
}

// `ends` tells whether the product's kernel also does what it ends with.
OpCall call_of(const Gemm& g, bool own, bool ends) {
  const auto [M, N, K] = extents_of(g);
  const int64_t flags = (g.transpose_a ? 1 : 0) + (g.transpose_b ? 2 : 0) + (addend_of(g).empty() ? 0 : 4) +
                        (g.tf32 ? 8 : 0) + (g.c.dtype == g.a.dtype ? 0 : 16) + (own ? kFlagOwn : 0);
  return {.name = "gemm",
          .shape = {M, N, K, flags},
          .dtype = g.a.dtype,
          .flops = flops(g),
          .bytes = min_bytes(g) + (ends ? more_bytes(g.end, static_cast<double>(g.c.bytes())) : 0)};
}

std::atomic<ProductKernels> kernels_in_use{ProductKernels::cublaslt};

// Multiplies with cuBLASLt. A build without it can only plan, with the same scratch.
void multiply_on_gpu(Stream& stream, Arena& scratch, const Gemm& g) {
  const ArenaScope scope(scratch);
  const Tensor workspace = scratch.alloc(DType::u8, {cuda::workspace_bytes(g.c.shape[0], g.c.shape[1])});
  Gemm with = g;
  if (!g.bias.empty() && g.bias.dtype != g.c.dtype) {  // cuBLASLt needs a bias in the dtype of c
    with.bias = scratch.alloc(g.c.dtype, g.bias.shape);
    cast(stream, {.y = with.bias, .x = g.bias});
  }
  if constexpr (kCublasBuilt) return cuda::gemm(stream, with, workspace);
  stream.run("gemm", [] {});  // throws unless the stream is planning
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

// The result for K = 0: the product is zero, and c is the bias plus the addend.
void empty_product(const Gemm& g) {
  const int64_t N = g.c.shape[1], stride = strides_of(g).c;
  const Tensor& addend = addend_of(g);
  visit_float(g.c.dtype, [&]<class T>() {
    visit_float(g.a.dtype, [&]<class Bias>() {
      for (int64_t i = 0; i < g.c.size(); ++i) {
        const int64_t at = i / N * stride + i % N;
        const float bias = g.bias.empty() ? 0.0f : static_cast<float>(g.bias.as<Bias>()[i % N]);
        g.c.as<T>()[at] = T(bias + (addend.empty() ? 0.0f : static_cast<float>(addend.as<T>()[at])));
      }
    });
  });
}

template <class T>
void bias_backward(const BiasBackward& a, const Tensor& partials) {
  const int64_t N = a.dy.shape[-1], stride = a.dy_stride ? a.dy_stride : N;
  sum_row_blocks(0, a.dy.rows(), partials, [&](int64_t row, float* sums, auto) {
    const T* dy = a.dy.as<T>() + row * stride;
    for_each_vector(N, [&](int64_t i, auto lanes) {
      store(sums + i, load(sums + i, lanes) + load(dy + i, lanes), lanes);
    });
  });
  add_row_blocks(a.db, partials, a.accumulate);
}

}  // namespace
}  // namespace cpu

namespace {

void write_empty_product(Stream& stream, const Gemm& g) {
  if (stream.planning()) return;
  if constexpr (kCublasBuilt)
    if (stream.device().is_cuda()) return cuda::empty_product(stream, g);
  stream.run("gemm", [g] { cpu::empty_product(g); });
}

}  // namespace

GemmStrides strides_of(const Gemm& g) {
  return {stride_or_width("gemm: a", g.a_stride, g.a.shape[1]),
          stride_or_width("gemm: b", g.b_stride, g.b.shape[1]),
          stride_or_width("gemm: c", g.c_stride, g.c.shape[1])};
}

namespace {

// Whether the project's kernel multiplies: it is selected and supports the product. Plans do not ask the GPU.
bool is_own(const Stream& stream, const Gemm& g) {
  return product_kernels() == ProductKernels::own && stream.device().is_cuda() && extents_of(g).K > 0 &&
         cuda::multiplies_on_sm90(g) && (stream.planning() || has_own_products(stream.device()));
}

void multiply_by_own_kernel(Stream& stream, const Gemm& g, bool ends) {
  Gemm made = g;
  if (!ends) made.end = {};
  if constexpr (kCublasBuilt) cuda::gemm_sm90(stream, made);
}

// Without what the product ends with.
void multiply(Stream& stream, Arena& scratch, const Gemm& g) {
  if (extents_of(g).K == 0) return write_empty_product(stream, g);
  if (stream.device().is_cuda()) return multiply_on_gpu(stream, scratch, g);
  if (has_few_rows(g)) return stream.run("gemm", [g] { multiply_few_rows(g); });
  const ArenaScope scope(scratch);
  const HostProduct product(scratch, g);
  stream.run("gemm", [=] { product.run(g); });
}

}  // namespace

void gemm(Stream& stream, Arena& scratch, const Gemm& g) {
  check_gemm(g);
  if (g.c.empty()) return;
  const bool own = is_own(stream, g), ends = own && cuda::ends_on_sm90(g);
  if (stream.recorded()) stream.note(call_of(g, own, ends));
  if (own && !stream.planning())
    multiply_by_own_kernel(stream, g, ends);
  else  // a plan has the scratch of cuBLASLt in any case
    multiply(stream, scratch, g);
  if (!ends) run(stream, g.end);
}

void bias_backward(Stream& stream, Arena& scratch, const BiasBackward& a) {
  check(a.db.dtype == DType::f32 && a.db.size() == a.dy.shape[-1], "bias_backward: db is ", a.db.dtype, " ",
        a.db.shape, ", must be f32 (", a.dy.shape[-1], ")");
  stride_or_width("bias_backward: dy", a.dy_stride, a.dy.shape[-1]);
  const ArenaScope scope(scratch);
  const Tensor partials =
      scratch.alloc(DType::f32, {partial_rows(stream.device(), a.dy.rows(), a.dy.shape[-1]), a.dy.shape[-1]});
  if (plans(stream, "bias_backward", a, a.dy)) return;
  if (a.dy.empty()) return a.accumulate ? void() : zero(stream, a.db);
  if constexpr (kCublasBuilt)
    if (stream.device().is_cuda()) return cuda::bias_backward(stream, a, partials);
  stream.run("bias_backward", [a, partials] {
    visit_float(a.dy.dtype, [&]<class T>() { cpu::bias_backward<T>(a, partials); });
  });
}

void spare_multiprocessors(Device device, int count) {
  if constexpr (kCublasBuilt)
    if (device.is_cuda()) cuda::spare_multiprocessors(device, count);
}

void use_product_kernels(ProductKernels kernels) { kernels_in_use = kernels; }
ProductKernels product_kernels() { return kernels_in_use; }
bool has_own_products(Device device) {
  if constexpr (kCublasBuilt) return device.is_cuda() && cuda::has_gemm_sm90();
  return false;
}

void prepare_gemm(Device device) {
  if constexpr (kCublasBuilt)
    if (device.is_cuda()) cuda::prepare_gemm(device);
}

double min_bytes(const Gemm& g) { return bytes_of(g.a, g.b, g.bias, g.c, addend_of(g)); }
double min_bytes(const BiasBackward& a) { return bytes_of(a.dy, a.db) + (a.accumulate ? bytes_of(a.db) : 0); }
double flops(const Gemm& g) {
  return 2.0 * static_cast<double>(g.c.size()) * static_cast<double>(extents_of(g).K);
}
double flops(const BiasBackward& a) { return static_cast<double>(a.dy.size()); }

}  // namespace flatshard
