#include "kernels/rmsnorm.h"

#include <cmath>

#include "build_config.h"
#include "kernels/norm_types.h"
#include "kernels/op.h"
#include "kernels/packed.h"
#include "kernels/row_blocks.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

void check_norm(const char* op, const Tensor& x, const Tensor& w, const Tensor& rstd) {
  check(w.size() == x.shape[-1] && (w.dtype == x.dtype || w.dtype == DType::f32), op, ": w is ", w.dtype, " ",
        w.shape, ", x is ", x.dtype, " ", x.shape,
        "; w must have the last dimension of x, and its dtype or f32");
  check_each(op, "rstd", rstd, DType::f32, x.rows(), "rows");
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

template <class T, class W>
void forward(const RmsNormForward& a, int64_t y_stride) {
  const int64_t C = a.x.shape[-1];
  parallel_write(a.y.bytes(), a.x.rows(), rows_per_block(C), [&](int64_t begin, int64_t end, auto out) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = a.x.as<T>() + row * C;
      const float squares = sum_vectors(C, [&](int64_t i, auto lanes, Floats& total) {
        const Floats v = load(x + i, lanes);
        total = fma(v, v, total);
      });
      const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(C) + a.eps);
      a.rstd.as<float>()[row] = rstd;
      T* y = a.y.as<T>() + row * y_stride;
      const W* w = a.w.as<W>();
      const T* addend = a.addend.empty() ? nullptr : a.addend.as<T>() + row * C;
      for_each_vector(C, [&](int64_t i, auto lanes) {
        const Floats unrounded = load(x + i, lanes) * rstd;
        const Floats xhat = a.round_xhat ? round_to<T>(unrounded) : unrounded,
                     product = xhat * (load(w + i, lanes) + a.offset);
        out.store(y + i, addend ? load(addend + i, lanes) + product : product, lanes);
      });
    }
  });
}

// Computes dx of one row, and adds dy xhat to dw if it is wanted.
template <class T, class W, bool kWantsDw, class Output>
void backward_row(const RmsNormBackward& a, int64_t row, float* dw, Output out) {
  const int64_t C = a.x.shape[-1];
  const T *x = a.x.as<T>() + row * C, *dy = a.dy.as<T>() + row * C;
  const W* w = a.w.as<W>();
  T* dx = a.dx.as<T>() + row * C;
  const float rstd = a.rstd.as<float>()[row];
  const float dot = sum_vectors(C, [&](int64_t i, auto lanes, Floats& total) {
    const Floats g = load(dy + i, lanes), xhat = load(x + i, lanes) * rstd;
    total = fma(g * (load(w + i, lanes) + a.offset), xhat, total);
    if constexpr (kWantsDw)
      store(dw + i, fma(g, a.round_xhat ? round_to<T>(xhat) : xhat, load(dw + i, lanes)), lanes);
  });
  const Floats mean = splat(dot / static_cast<float>(C));
  for_each_vector(C, [&](int64_t i, auto lanes) {
    const Floats xhat = load(x + i, lanes) * rstd,
                 dxhat = load(dy + i, lanes) * (load(w + i, lanes) + a.offset);
    const Floats gradient = rstd * (dxhat - xhat * mean);
    out.store(dx + i, a.accumulate_dx ? load(dx + i, lanes) + gradient : gradient, lanes);
  });
}

template <class T, class W, bool kWantsDw>
void backward(const RmsNormBackward& a, const Tensor& partial_dw) {
  sum_row_blocks(a.accumulate_dx ? 0 : a.dx.bytes(), a.x.rows(), partial_dw,
                 [&](int64_t row, float* dw, auto out) { backward_row<T, W, kWantsDw>(a, row, dw, out); });
  add_row_blocks(a.dw, partial_dw, a.accumulate);
}

}  // namespace
}  // namespace cpu

void rmsnorm_forward(Stream& stream, const RmsNormForward& a) {
  check_norm("rmsnorm_forward", a.x, a.w, a.rstd);
  check_like("rmsnorm_forward", "y", a.y, "x", a.x);
  if (!a.addend.empty()) check_like("rmsnorm_forward", "addend", a.addend, "x", a.x);
  const int64_t y_stride = stride_or_width("rmsnorm_forward: y", a.y_stride, a.x.shape[-1]);
  if (a.x.empty() || plans(stream, "rmsnorm_forward", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::rmsnorm_forward(stream, a, y_stride);
  stream.run("rmsnorm_forward", [a, y_stride] {
    visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() { cpu::forward<T, W>(a, y_stride); });
  });
}

void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& a) {
  check_norm("rmsnorm_backward", a.x, a.w, a.rstd);
  check_like("rmsnorm_backward", "dx", a.dx, "x", a.x);
  check_like("rmsnorm_backward", "dy", a.dy, "x", a.x);
  check_gradient("rmsnorm_backward", "dw", a.dw, a.w);
  const ArenaScope scope(scratch);
  const Tensor partial_dw =
      scratch.alloc(DType::f32, {partial_rows(stream.device(), a.x.rows()), a.dw.size()});
  if (plans(stream, "rmsnorm_backward", a, a.x)) return;
  if (a.x.empty()) return a.accumulate ? void() : zero(stream, a.dw);
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::rmsnorm_backward(stream, a, partial_dw);
  stream.run("rmsnorm_backward", [a, partial_dw] {
    visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
      a.dw.empty() ? cpu::backward<T, W, false>(a, partial_dw) : cpu::backward<T, W, true>(a, partial_dw);
    });
  });
}

double min_bytes(const RmsNormForward& a) { return bytes_of(a.x, a.addend, a.y, a.w, a.rstd); }
double min_bytes(const RmsNormBackward& a) {
  return bytes_of(a.x, a.dy, a.dx, a.w, a.dw, a.rstd) + (a.accumulate_dx ? bytes_of(a.dx) : 0) +
         (a.accumulate ? bytes_of(a.dw) : 0);
}
double flops(const RmsNormForward& a) {
  return (a.addend.empty() ? 4.0 : 5.0) * static_cast<double>(a.x.size());
}
double flops(const RmsNormBackward& a) {
  return (a.dw.empty() ? 8.0 : 10.0) * static_cast<double>(a.x.size());
}

}  // namespace flatshard
