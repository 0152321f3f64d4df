// RMSNorm on the GPU. In the forward pass a thread block owns a row. In the backward pass it owns kRowBlock
// rows, like a task on the CPU: it writes their dx and one partial sum of dw, if that is wanted.

#include "kernels/norm_types.h"
#include "kernels/rmsnorm.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

template <class T, class W, int N>
__global__ void __launch_bounds__(kRowThreads)
    forward_kernel(T* y_all, float* rstd_all, const T* x_all, const W* w, int64_t C, float eps, float offset,
                   bool round_xhat) {
  const int64_t row = blockIdx.x;
  const T* x = x_all + row * C;
  T* y = y_all + row * C;
  float squares = 0.0f;
  for_each_pack<N>(C, [&](int64_t i) {
    const Pack<T, N> v = load<T, N>(x + i);
    for (int k = 0; k < N; ++k) squares = fmaf(to_float(v.element[k]), to_float(v.element[k]), squares);
  });
  const float rstd = 1.0f / sqrtf(block_sum<kRowThreads>(squares) / static_cast<float>(C) + eps);
  if (threadIdx.x == 0) rstd_all[row] = rstd;
  for_each_pack<N>(C, [&](int64_t i) {
    const Pack<T, N> v = load<T, N>(x + i);
    const auto weight = load_floats<W, N>(w + i);
    Pack<T, N> out;
    for (int k = 0; k < N; ++k) {
      const float xhat = to_float(v.element[k]) * rstd;
      out.element[k] = from_float<T>((round_xhat ? round_to<T>(xhat) : xhat) * (weight.element[k] + offset));
    }
    store<T, N>(y + i, out);
  });
}

struct BackwardPointers {
  void* dx;
  float* partial_dw;  // null: dw is not wanted
  const void *dy, *x, *w;
  const float* rstd;
  float offset;
  bool round_xhat;
};

// Accumulates the partial sums of a block in global memory, row by row; each column belongs to one thread.
template <class T, class W, int N>
__global__ void __launch_bounds__(kRowThreads)
    backward_kernel(BackwardPointers p, int64_t rows, int64_t C, int64_t row_block, bool accumulate) {
  const W* w = static_cast<const W*>(p.w);
  const bool wants_dw = p.partial_dw;
  float* dw = p.partial_dw + blockIdx.x * C;
  using Partial = PartialRow<N>;
  const Partial partial{C / N};
  const int64_t begin = blockIdx.x * row_block, end = begin + row_block < rows ? begin + row_block : rows;
  for (int64_t row = begin; row < end; ++row) {
    const T *x = static_cast<const T*>(p.x) + row * C, *dy = static_cast<const T*>(p.dy) + row * C;
    T* dx = static_cast<T*>(p.dx) + row * C;
    const float rstd = p.rstd[row];
    float dot = 0.0f;
    for_each_pack<N>(C, [&](int64_t i) {
      const Pack<T, N> v = load<T, N>(x + i), g = load<T, N>(dy + i);
      const auto weight = load_floats<W, N>(w + i);
      for (int piece = 0; piece < Partial::kPieces; ++piece) {
        float* at = dw + partial.place(i, piece);
        typename Partial::Piece sum{};
        if (wants_dw && row != begin) sum = load<float, Partial::kPiece>(at);
        for (int j = 0; j < Partial::kPiece; ++j) {
          const int k = piece * Partial::kPiece + j;
          const float xhat = to_float(v.element[k]) * rstd, gradient = to_float(g.element[k]);
          dot = fmaf(gradient * (weight.element[k] + p.offset), xhat, dot);
          sum.element[j] = fmaf(gradient, p.round_xhat ? round_to<T>(xhat) : xhat, sum.element[j]);
        }
        if (wants_dw) store<float, Partial::kPiece>(at, sum);
      }
    });
    const float mean = block_sum<kRowThreads>(dot) / static_cast<float>(C);
    for_each_pack<N>(C, [&](int64_t i) {
      const Pack<T, N> v = load<T, N>(x + i), g = load<T, N>(dy + i);
      const auto weight = load_floats<W, N>(w + i);
      Pack<T, N> out = accumulate ? load<T, N>(dx + i) : Pack<T, N>{};
      for (int k = 0; k < N; ++k) {
        const float xhat = to_float(v.element[k]) * rstd;
        const float dxhat = to_float(g.element[k]) * (weight.element[k] + p.offset);
        const float gradient = rstd * (dxhat - xhat * mean);
        out.element[k] = from_float<T>(accumulate ? to_float(out.element[k]) + gradient : gradient);
      }
      store<T, N>(dx + i, out);
    });
  }
}

template <class T, class W, int N>
void launch_forward(Stream& stream, const RmsNormForward& a) {
  forward_kernel<T, W, N><<<static_cast<unsigned>(a.x.rows()), kRowThreads, 0, native(stream)>>>(
      a.y.as<T>(), a.rstd.as<float>(), a.x.as<T>(), a.w.as<W>(), a.x.shape[-1], a.eps, a.offset,
      a.round_xhat);
  check_launch("rmsnorm_forward");
}

template <class T, class W, int N>
void launch_backward(Stream& stream, const RmsNormBackward& a, const Tensor& partial_dw) {
  const BackwardPointers p{a.dx.data, partial_dw.empty() ? nullptr : partial_dw.as<float>(),
                           a.dy.data, a.x.data,
                           a.w.data,  a.rstd.as<float>(),
                           a.offset,  a.round_xhat};
  const int64_t C = a.x.shape[-1];
  const int64_t rows = a.x.rows(), blocks = partial_dw.shape[0], row_block = (rows + blocks - 1) / blocks;
  backward_kernel<T, W, N><<<static_cast<unsigned>(blocks), kRowThreads, 0, native(stream)>>>(
      p, rows, C, row_block, a.accumulate_dx);
  check_launch("rmsnorm_backward");
  add_partials<N>(stream, "rmsnorm_backward: add_partials", a.dw, partial_dw, a.accumulate);
}

}  // namespace

void rmsnorm_forward(Stream& stream, const RmsNormForward& a) {
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    if (packable<T>(a.x.shape[-1], a.x.data, a.y.data, a.w.data))
      launch_forward<T, W, kPackSize<T>>(stream, a);
    else
      launch_forward<T, W, 1>(stream, a);
  });
}

void rmsnorm_backward(Stream& stream, const RmsNormBackward& a, const Tensor& partial_dw) {
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    if (packable<T>(a.x.shape[-1], a.x.data, a.dx.data, a.dy.data, a.w.data, partial_dw.data))
      launch_backward<T, W, kPackSize<T>>(stream, a, partial_dw);
    else
      launch_backward<T, W, 1>(stream, a, partial_dw);
  });
}

}  // namespace flatshard::cuda
