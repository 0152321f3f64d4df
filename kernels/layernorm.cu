// LayerNorm on the GPU. In the forward pass a thread block owns a row. In the backward pass it owns a block
// of rows, like a task on the CPU: it writes their dx and, if they are wanted, one partial sum of dw and of
// db, which is stored after dw.

#include "kernels/layernorm.h"
#include "kernels/norm_types.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

struct ForwardPointers {
  void* y;
  float *mean, *rstd;
  const void *x, *w, *b;
};

template <class T, class W, int N>
__global__ void __launch_bounds__(kRowThreads) forward_kernel(ForwardPointers p, int64_t C, float eps) {
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(p.x) + row * C;
  T* y = static_cast<T*>(p.y) + row * C;
  float total = 0.0f;
  for_each_pack<N>(C, [&](int64_t i) {
    const Pack<T, N> v = load<T, N>(x + i);
    for (int k = 0; k < N; ++k) total += to_float(v.element[k]);
  });
  const float mean = block_sum<kRowThreads>(total) / static_cast<float>(C);
  float squares = 0.0f;
  for_each_pack<N>(C, [&](int64_t i) {
    const Pack<T, N> v = load<T, N>(x + i);
    for (int k = 0; k < N; ++k) {
      const float centred = to_float(v.element[k]) - mean;
      squares = fmaf(centred, centred, squares);
    }
  });
  const float rstd = 1.0f / sqrtf(block_sum<kRowThreads>(squares) / static_cast<float>(C) + eps);
  if (threadIdx.x == 0) {
    p.mean[row] = mean;
    p.rstd[row] = rstd;
  }
  for_each_pack<N>(C, [&](int64_t i) {
    const Pack<T, N> v = load<T, N>(x + i);
    const auto weight = load_floats<W, N>(static_cast<const W*>(p.w) + i);
    const auto bias = load_floats<W, N>(static_cast<const W*>(p.b) + i);
    Pack<T, N> out;
    for (int k = 0; k < N; ++k) {
      const float xhat = (to_float(v.element[k]) - mean) * rstd;
      out.element[k] = from_float<T>(fmaf(xhat, weight.element[k], bias.element[k]));
    }
    store<T, N>(y + i, out);
  });
}

struct BackwardPointers {
  void* dx;
  float* partials;  // null: neither dw nor db is wanted
  const void *dy, *x, *w;
  const float *mean, *rstd;
};

// One row of the backward pass, in packs of N elements.
template <class T, class W, int N>
struct BackwardRow {
  using Partial = PartialRow<N>;
  T* dx;
  const T *dy, *x;
  const W* w;
  float mean, rstd;
  int64_t C;

  struct Sums {
    float dxhat = 0.0f, dot = 0.0f;
  };
  // For the columns of this thread: the sums for dx, and the contribution to dw and db if they are wanted,
  // which the first row initializes.
  __device__ Sums add_weights(float* dw, bool wanted, bool first) const {
    const Partial partial{C / N};
    float* db = dw + C;
    Sums sums;
    for_each_pack<N>(C, [&](int64_t i) {
      const Pack<T, N> v = load<T, N>(x + i), g = load<T, N>(dy + i);
      const auto weight = load_floats<W, N>(w + i);
      for (int piece = 0; piece < Partial::kPieces; ++piece) {
        const int64_t at = partial.place(i, piece);
        typename Partial::Piece weight_sum{}, bias_sum{};
        if (wanted && !first) {
          weight_sum = load<float, Partial::kPiece>(dw + at);
          bias_sum = load<float, Partial::kPiece>(db + at);
        }
        for (int j = 0; j < Partial::kPiece; ++j) {
          const int k = piece * Partial::kPiece + j;
          const float xhat = (to_float(v.element[k]) - mean) * rstd, gradient = to_float(g.element[k]);
          const float dxhat = gradient * weight.element[k];
          sums.dxhat += dxhat;
          sums.dot = fmaf(dxhat, xhat, sums.dot);
          weight_sum.element[j] = fmaf(gradient, xhat, weight_sum.element[j]);
          bias_sum.element[j] += gradient;
        }
        if (wanted) {
          store<float, Partial::kPiece>(dw + at, weight_sum);
          store<float, Partial::kPiece>(db + at, bias_sum);
        }
      }
    });
    return sums;
  }

  __device__ void write_dx(float mean_dxhat, float mean_dot, bool accumulate) const {
    for_each_pack<N>(C, [&](int64_t i) {
      const Pack<T, N> v = load<T, N>(x + i), g = load<T, N>(dy + i);
      const auto weight = load_floats<W, N>(w + i);
      Pack<T, N> out = accumulate ? load<T, N>(dx + i) : Pack<T, N>{};
      for (int k = 0; k < N; ++k) {
        const float xhat = (to_float(v.element[k]) - mean) * rstd;
        const float dxhat = to_float(g.element[k]) * weight.element[k];
        const float gradient = rstd * (dxhat - mean_dxhat - xhat * mean_dot);
        out.element[k] = from_float<T>(accumulate ? to_float(out.element[k]) + gradient : gradient);
      }
      store<T, N>(dx + i, out);
    });
  }
};

// Accumulates the partial sums of a block in global memory, row by row; each column belongs to one thread.
template <class T, class W, int N>
__global__ void __launch_bounds__(kRowThreads)
    backward_kernel(BackwardPointers p, int64_t rows, int64_t C, int64_t row_block, bool accumulate) {
  float* dw = p.partials + blockIdx.x * 2 * C;
  const int64_t begin = blockIdx.x * row_block, end = begin + row_block < rows ? begin + row_block : rows;
  for (int64_t r = begin; r < end; ++r) {
    const BackwardRow<T, W, N> row{.dx = static_cast<T*>(p.dx) + r * C,
                                   .dy = static_cast<const T*>(p.dy) + r * C,
                                   .x = static_cast<const T*>(p.x) + r * C,
                                   .w = static_cast<const W*>(p.w),
                                   .mean = p.mean[r],
                                   .rstd = p.rstd[r],
                                   .C = C};
    const auto sums = row.add_weights(dw, p.partials, r == begin);
    const float mean_dxhat = block_sum<kRowThreads>(sums.dxhat) / static_cast<float>(C);
    const float mean_dot = block_sum<kRowThreads>(sums.dot) / static_cast<float>(C);
    row.write_dx(mean_dxhat, mean_dot, accumulate);
  }
}

template <class T, class W, int N>
void launch_forward(Stream& stream, const LayerNormForward& a) {
  const ForwardPointers p{a.y.data, a.mean.as<float>(), a.rstd.as<float>(), a.x.data, a.w.data, a.b.data};
  forward_kernel<T, W, N>
      <<<static_cast<unsigned>(a.x.rows()), kRowThreads, 0, native(stream)>>>(p, a.x.shape[-1], a.eps);
  check_launch("layernorm_forward");
}

template <class T, class W, int N>
void launch_backward(Stream& stream, const LayerNormBackward& a, const Tensor& partials) {
  const BackwardPointers p{a.dx.data,         partials.empty() ? nullptr : partials.as<float>(),
                           a.dy.data,         a.x.data,
                           a.w.data,          a.mean.as<float>(),
                           a.rstd.as<float>()};
  const int64_t C = a.x.shape[-1];
  const int64_t rows = a.x.rows(), blocks = partials.shape[0], row_block = (rows + blocks - 1) / blocks;
  backward_kernel<T, W, N><<<static_cast<unsigned>(blocks), kRowThreads, 0, native(stream)>>>(
      p, rows, C, row_block, a.accumulate_dx);
  check_launch("layernorm_backward");
  add_partials<N>(stream, "layernorm_backward: dw", a.dw, partials, a.accumulate);
  add_partials<N>(stream, "layernorm_backward: db", a.db, partials, a.accumulate, C);
}

}  // namespace

void layernorm_forward(Stream& stream, const LayerNormForward& a) {
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    if (packable<T>(a.x.shape[-1], a.x.data, a.y.data, a.w.data, a.b.data))
      launch_forward<T, W, kPackSize<T>>(stream, a);
    else
      launch_forward<T, W, 1>(stream, a);
  });
}

void layernorm_backward(Stream& stream, const LayerNormBackward& a, const Tensor& partials) {
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    if (packable<T>(a.x.shape[-1], a.x.data, a.dx.data, a.dy.data, a.w.data, partials.data))
      launch_backward<T, W, kPackSize<T>>(stream, a, partials);
    else
      launch_backward<T, W, 1>(stream, a, partials);
  });
}

}  // namespace flatshard::cuda
