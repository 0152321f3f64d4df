#include "kernels/rmsnorm.h"

#include <cmath>

#include "build_config.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

constexpr int64_t kRowBlock = kRmsNormRowBlock;

void check_norm(const char* op, const Tensor& x, const Tensor& w, const Tensor& rstd) {
  check(w.size() == x.shape[-1] && w.dtype == x.dtype, op, ": w is ", w.dtype, " ", w.shape, ", x is ",
        x.dtype, " ", x.shape, "; w must have x's dtype and last dimension");
  check(rstd.size() == x.rows() && rstd.dtype == DType::f32, op, ": rstd is ", rstd.dtype, " ", rstd.shape,
        ", must be f32 with one element for each of ", x.rows(), " rows");
}

int64_t row_blocks(const Tensor& x) { return (x.rows() + kRowBlock - 1) / kRowBlock; }

}  // namespace

namespace cpu {
namespace {

using namespace simd;

template <class T>
void forward(const RmsNormForward& a) {
  const int64_t C = a.x.shape[-1];
  parallel_blocks(a.x.rows(), kRowBlock, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = a.x.as<T>() + row * C;
      Floats squares{};
      for_each_vector(C, [&](int64_t i, auto lanes) {
        const Floats v = load(x + i, lanes);
        squares = fma(v, v, squares);
      });
      const float rstd = 1.0f / std::sqrt(sum(squares) / static_cast<float>(C) + a.eps);
      a.rstd.as<float>()[row] = rstd;
      T* y = a.y.as<T>() + row * C;
      const T* w = a.w.as<T>();
      for_each_vector(C, [&](int64_t i, auto lanes) {
        store(y + i, round_to<T>(load(x + i, lanes) * rstd) * load(w + i, lanes), lanes);
      });
    }
  });
}

// One row: writes dx, adds dy xhat to dw.
template <class T>
void backward_row(const RmsNormBackward& a, int64_t row, float* dw) {
  const int64_t C = a.x.shape[-1];
  const T *x = a.x.as<T>() + row * C, *dy = a.dy.as<T>() + row * C, *w = a.w.as<T>();
  T* dx = a.dx.as<T>() + row * C;
  const float rstd = a.rstd.as<float>()[row];
  Floats dot{};
  for_each_vector(C, [&](int64_t i, auto lanes) {
    const Floats g = load(dy + i, lanes), xhat = load(x + i, lanes) * rstd;
    dot = fma(g * load(w + i, lanes), xhat, dot);
    store(dw + i, fma(g, round_to<T>(xhat), load(dw + i, lanes)), lanes);
  });
  const Floats mean = splat(sum(dot) / static_cast<float>(C));
  for_each_vector(C, [&](int64_t i, auto lanes) {
    const Floats xhat = load(x + i, lanes) * rstd, dxhat = load(dy + i, lanes) * load(w + i, lanes);
    const Floats gradient = rstd * (dxhat - xhat * mean);
    store(dx + i, a.accumulate_dx ? load(dx + i, lanes) + gradient : gradient, lanes);
  });
}

template <class T>
void backward(const RmsNormBackward& a, const Tensor& partial_dw) {
  const int64_t C = a.x.shape[-1], rows = a.x.rows();
  parallel_for(row_blocks(a.x), [&](int64_t block) {
    float* dw = partial_dw.as<float>() + block * C;
    std::fill(dw, dw + C, 0.0f);
    for (int64_t row = block * kRowBlock; row < std::min(rows, (block + 1) * kRowBlock); ++row)
      backward_row<T>(a, row, dw);
  });
  parallel_blocks(C, 256, [&](int64_t begin, int64_t end) {
    float* dw = a.dw.as<float>() + begin;
    for (int64_t block = 0; block < row_blocks(a.x); ++block) {
      const float* part = partial_dw.as<float>() + block * C + begin;
      for_each_vector(end - begin, [&](int64_t i, auto lanes) {
        store(dw + i, load(dw + i, lanes) + load(part + i, lanes), lanes);
      });
    }
  });
}

}  // namespace
}  // namespace cpu

void rmsnorm_forward(Stream& stream, const RmsNormForward& a) {
  check_norm("rmsnorm_forward", a.x, a.w, a.rstd);
  check(a.y.shape == a.x.shape && a.y.dtype == a.x.dtype, "rmsnorm_forward: y is ", a.y.dtype, " ", a.y.shape,
        ", x is ", a.x.dtype, " ", a.x.shape);
  if (stream.planning() || a.x.empty()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::rmsnorm_forward(stream, a);
  stream.run("rmsnorm_forward", [a] { visit_float(a.x.dtype, [&]<class T>() { cpu::forward<T>(a); }); });
}

void rmsnorm_backward(Stream& stream, Arena& scratch, const RmsNormBackward& a) {
  check_norm("rmsnorm_backward", a.x, a.w, a.rstd);
  check(a.dx.shape == a.x.shape && a.dy.shape == a.x.shape && a.dx.dtype == a.x.dtype &&
            a.dy.dtype == a.x.dtype,
        "rmsnorm_backward: dx ", a.dx.shape, ", dy ", a.dy.shape, " and x ", a.x.shape, " must agree");
  check(a.dw.dtype == DType::f32 && a.dw.size() == a.w.size(), "rmsnorm_backward: dw is ", a.dw.dtype, " ",
        a.dw.shape, ", must be f32 like w ", a.w.shape);
  const ArenaScope scope(scratch);
  const Tensor partial_dw = scratch.alloc(DType::f32, {row_blocks(a.x), a.x.shape[-1]});
  if (stream.planning() || a.x.empty()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::rmsnorm_backward(stream, a, partial_dw);
  stream.run("rmsnorm_backward", [a, partial_dw] {
    visit_float(a.x.dtype, [&]<class T>() { cpu::backward<T>(a, partial_dw); });
  });
}

double min_bytes(const RmsNormForward& a) {
  return static_cast<double>(a.x.bytes() + a.y.bytes() + a.w.bytes() + a.rstd.bytes());
}
double min_bytes(const RmsNormBackward& a) {
  const int64_t dx = a.accumulate_dx ? 2 * a.dx.bytes() : a.dx.bytes();
  return static_cast<double>(a.x.bytes() + a.dy.bytes() + dx + a.w.bytes() + 2 * a.dw.bytes() +
                             a.rstd.bytes());
}
double flops(const RmsNormForward& a) { return 4.0 * static_cast<double>(a.x.size()); }
double flops(const RmsNormBackward& a) { return 10.0 * static_cast<double>(a.x.size()); }

}  // namespace flatshard
