#include "kernels/host_product.h"

#include "kernels/row_blocks.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

using namespace simd;

// Widens f16 operands to f32 in scratch; c is rounded at the end.
Gemm widened(Arena& scratch, const Gemm& g) {
  Gemm wide = g;
  wide.a_stride = wide.b_stride = 0;
  wide.a = scratch.alloc(DType::f32, g.a.shape);
  wide.b = scratch.alloc(DType::f32, g.b.shape);
  if (!g.bias.empty()) wide.bias = scratch.alloc(DType::f32, g.bias.shape);
  if (g.c.dtype == DType::f32) return wide;
  wide.c = scratch.alloc(DType::f32, g.c.shape);
  wide.c_stride = 0;
  wide.accumulate = !addend_of(g).empty();
  wide.addend = {};
  return wide;
}

// Strides are the elements between rows.
template <class From, class To>
void convert(const Tensor& to, int64_t to_stride, const Tensor& from, int64_t from_stride) {
  const int64_t C = from.shape[-1];
  parallel_blocks(from.rows(), rows_per_block(C), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for_each_vector(C, [&](int64_t i, auto lanes) {
        store(to.as<To>() + row * to_stride + i, load(from.as<From>() + row * from_stride + i, lanes), lanes);
      });
  });
}

}  // namespace

HostProduct::HostProduct(Arena& scratch, const Gemm& g)
    : HostProduct(scratch, g, g.a.dtype == DType::f16 ? widened(scratch, g) : g) {}

HostProduct::HostProduct(Arena& scratch, const Gemm& g, const Gemm& wide)
    : wide_(wide),
      widens_(g.a.dtype == DType::f16),
      cut_(wide, strides_of(wide).b),
      workspace_(scratch.alloc(DType::u8, {thread_count() * cut_.scratch_bytes()})) {}

void HostProduct::run(const Gemm& g) const {
  if (!widens_) return cut_.on(g).run(workspace_);
  const auto [a_stride, b_stride, c_stride] = strides_of(g);
  const int64_t N = g.c.shape[1];
  const bool rounds = wide_.c.dtype != g.c.dtype;
  Gemm wide = wide_;
  if (!rounds) {
    wide.c = g.c;
    wide.addend = g.addend;
  }
  convert<f16, float>(wide.a, g.a.shape[1], g.a, a_stride);
  convert<f16, float>(wide.b, g.b.shape[1], g.b, b_stride);
  if (!g.bias.empty()) convert<f16, float>(wide.bias, N, g.bias, N);
  if (rounds && wide.accumulate) convert<f16, float>(wide.c, N, addend_of(g), c_stride);
  cut_.on(wide).run(workspace_);
  if (rounds) convert<float, f16>(g.c, c_stride, wide.c, N);
}

}  // namespace flatshard
