#include "kernels/layernorm.h"

#include <cmath>

#include "build_config.h"
#include "kernels/norm_types.h"
#include "kernels/op.h"
#include "kernels/packed.h"
#include "kernels/row_blocks.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

void check_parameter(const char* op, const char* name, const Tensor& parameter, const Tensor& x) {
  check(parameter.size() == x.shape[-1] && (parameter.dtype == x.dtype || parameter.dtype == DType::f32), op,
        ": ", name, " is ", parameter.dtype, " ", parameter.shape, ", x is ", x.dtype, " ", x.shape, "; ",
        name, " must have the last dimension of x, and its dtype or f32");
}

// Returns whether dw or db is wanted. Both are summed together, and each wanted one is stored.
bool wants_sums(const LayerNormBackward& a) { return !a.dw.empty() || !a.db.empty(); }

}  // namespace

namespace cpu {
namespace {

using namespace simd;

// Computes one row of y and its statistics.
template <class T, class W, class Output>
void forward_row(const LayerNormForward& a, int64_t y_stride, int64_t row, Output out) {
  const int64_t C = a.x.shape[-1];
  const T* x = a.x.as<T>() + row * C;
  const W *w = a.w.as<W>(), *b = a.b.as<W>();
  T* y = a.y.as<T>() + row * y_stride;
  const float total =
      sum_vectors(C, [&](int64_t i, auto lanes, Floats& part) { part = part + load(x + i, lanes); });
  const float mean = total / static_cast<float>(C);
  const float squares = sum_vectors(C, [&](int64_t i, auto lanes, Floats& part) {
    const Floats centred = keep_lanes(load(x + i, lanes) - mean, lanes, 0.0f);
    part = fma(centred, centred, part);
  });
  const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(C) + a.eps);
  a.mean.as<float>()[row] = mean;
  a.rstd.as<float>()[row] = rstd;
  for_each_vector(C, [&](int64_t i, auto lanes) {
    fetch(x + C + i);
    const Floats xhat = (load(x + i, lanes) - mean) * rstd;
    out.store(y + i, fma(xhat, load(w + i, lanes), load(b + i, lanes)), lanes);
  });
}

template <class T, class W>
void forward(const LayerNormForward& a, int64_t y_stride) {
  const int64_t rows = a.x.rows();
  parallel_write(a.y.bytes(), rows, rows_per_block(a.x.shape[-1]), [&](int64_t begin, int64_t end, auto out) {
    for (int64_t row = begin; row < end; ++row) forward_row<T, W>(a, y_stride, row, out);
  });
}

// Computes dx of one row. With kSums it also adds dy xhat to dw and dy to db, which is stored after dw.
template <class T, class W, bool kSums, class Output>
void backward_row(const LayerNormBackward& a, int64_t row, float* dw, Output out) {
  const int64_t C = a.x.shape[-1];
  const T *x = a.x.as<T>() + row * C, *dy = a.dy.as<T>() + row * C;
  const W* w = a.w.as<W>();
  T* dx = a.dx.as<T>() + row * C;
  [[maybe_unused]] float* db = dw + C;
  const float mean = a.mean.as<float>()[row], rstd = a.rstd.as<float>()[row];
  Floats dot{};
  const float total = sum_vectors(C, [&](int64_t i, auto lanes, Floats& part) {
    const Floats g = load(dy + i, lanes), xhat = (load(x + i, lanes) - mean) * rstd;
    const Floats dxhat = g * load(w + i, lanes);
    part = part + dxhat;
    dot = fma(dxhat, xhat, dot);
    if constexpr (kSums) {
      store(dw + i, fma(g, xhat, load(dw + i, lanes)), lanes);
      store(db + i, g + load(db + i, lanes), lanes);
    }
  });
  const float mean_dxhat = total / static_cast<float>(C), mean_dot = sum(dot) / static_cast<float>(C);
  for_each_vector(C, [&](int64_t i, auto lanes) {
    fetch(x + C + i);
    fetch(dy + C + i);
    const Floats xhat = (load(x + i, lanes) - mean) * rstd, dxhat = load(dy + i, lanes) * load(w + i, lanes);
    const Floats gradient = rstd * (dxhat - mean_dxhat - xhat * mean_dot);
    out.store(dx + i, a.accumulate_dx ? load(dx + i, lanes) + gradient : gradient, lanes);
  });
}

template <class T, class W, bool kSums>
void backward(const LayerNormBackward& a, const Tensor& partials) {
  sum_row_blocks(a.accumulate_dx ? 0 : a.dx.bytes(), a.x.rows(), partials,
                 [&](int64_t row, float* dw, auto out) { backward_row<T, W, kSums>(a, row, dw, out); });
  add_row_blocks(a.dw, partials, a.accumulate);
  add_row_blocks(a.db, partials, a.accumulate, a.x.shape[-1]);
}

}  // namespace
}  // namespace cpu

void layernorm_forward(Stream& stream, const LayerNormForward& a) {
  check_parameter("layernorm_forward", "w", a.w, a.x);
  check_parameter("layernorm_forward", "b", a.b, a.x);
  check(a.b.dtype == a.w.dtype, "layernorm_forward: b is ", a.b.dtype, ", must be ", a.w.dtype, " like w");
  check_each("layernorm_forward", "mean", a.mean, DType::f32, a.x.rows(), "rows");
  check_each("layernorm_forward", "rstd", a.rstd, DType::f32, a.x.rows(), "rows");
  check_like("layernorm_forward", "y", a.y, "x", a.x);
  const int64_t y_stride = stride_or_width("layernorm_forward: y", a.y_stride, a.x.shape[-1]);
  if (a.x.empty() || plans(stream, "layernorm_forward", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::layernorm_forward(stream, a, y_stride);
  stream.run("layernorm_forward", [a, y_stride] {
    visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() { cpu::forward<T, W>(a, y_stride); });
  });
}

void layernorm_backward(Stream& stream, Arena& scratch, const LayerNormBackward& a) {
  check_parameter("layernorm_backward", "w", a.w, a.x);
  check_each("layernorm_backward", "mean", a.mean, DType::f32, a.x.rows(), "rows");
  check_each("layernorm_backward", "rstd", a.rstd, DType::f32, a.x.rows(), "rows");
  check_like("layernorm_backward", "dx", a.dx, "x", a.x);
  check_like("layernorm_backward", "dy", a.dy, "x", a.x);
  const int64_t C = a.x.shape[-1];
  if (!a.dw.empty()) check_each("layernorm_backward", "dw", a.dw, DType::f32, C, "columns");
  if (!a.db.empty()) check_each("layernorm_backward", "db", a.db, DType::f32, C, "columns");
  const ArenaScope scope(scratch);
  const Tensor partials = scratch.alloc(
      DType::f32, {partial_rows(stream.device(), a.x.rows()), wants_sums(a) ? 2 * a.x.shape[-1] : 0});
  if (plans(stream, "layernorm_backward", a, a.x)) return;
  if (a.x.empty()) {
    if (!a.accumulate) zero(stream, a.dw), zero(stream, a.db);
    return;
  }
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::layernorm_backward(stream, a, partials);
  stream.run("layernorm_backward", [a, partials] {
    visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
      wants_sums(a) ? cpu::backward<T, W, true>(a, partials) : cpu::backward<T, W, false>(a, partials);
    });
  });
}

double min_bytes(const LayerNormForward& a) { return bytes_of(a.x, a.y, a.w, a.b, a.mean, a.rstd); }
double min_bytes(const LayerNormBackward& a) {
  return bytes_of(a.x, a.dy, a.dx, a.w, a.dw, a.db, a.mean, a.rstd) + (a.accumulate_dx ? bytes_of(a.dx) : 0) +
         (a.accumulate ? bytes_of(a.dw, a.db) : 0);
}
double flops(const LayerNormForward& a) { return 7.0 * static_cast<double>(a.x.size()); }
double flops(const LayerNormBackward& a) {
  return (wants_sums(a) ? 14.0 : 11.0) * static_cast<double>(a.x.size());
}

}  // namespace flatshard
