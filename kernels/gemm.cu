// The bias gradient and products with K = 0 on the GPU. cublas_gemm.cpp has the other products.

#include "kernels/gemm.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

// A thread block sums a block of rows, each thread a pack of columns.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads)
    bias_backward_kernel(float* partials, const T* dy, int64_t rows, int64_t C, int64_t row_block) {
  const int64_t i = (blockIdx.y * static_cast<int64_t>(kRowThreads) + threadIdx.x) * N;
  if (i >= C) return;
  const int64_t begin = blockIdx.x * row_block, end = begin + row_block < rows ? begin + row_block : rows;
  float sum[N] = {};
#pragma unroll 8
  for (int64_t row = begin; row < end; ++row) {
    const Pack<T, N> v = load<T, N>(dy + row * C + i);
    for (int k = 0; k < N; ++k) sum[k] += to_float(v.element[k]);
  }
  using Partial = PartialRow<N>;
  for (int piece = 0; piece < Partial::kPieces; ++piece) {
    typename Partial::Piece out;
    for (int k = 0; k < Partial::kPiece; ++k) out.element[k] = sum[piece * Partial::kPiece + k];
    store<float, Partial::kPiece>(partials + blockIdx.x * C + Partial{C / N}.place(i, piece), out);
  }
}

template <class T, int N>
void launch_bias_backward(Stream& stream, const BiasBackward& a, const Tensor& partials) {
  const int64_t C = a.dy.shape[-1], columns = int64_t{kRowThreads} * N;
  const int64_t rows = a.dy.rows(), blocks = partials.shape[0], row_block = (rows + blocks - 1) / blocks;
  const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>((C + columns - 1) / columns));
  bias_backward_kernel<T, N>
      <<<grid, kRowThreads, 0, native(stream)>>>(partials.as<float>(), a.dy.as<T>(), rows, C, row_block);
  check_launch("bias_backward");
  add_partials<N>(stream, "bias_backward: add_partials", a.db, partials, a.accumulate);
}

// A thread block owns a row.
template <class T, class Bias>
__global__ void __launch_bounds__(kRowThreads)
    empty_product_kernel(T* c, const Bias* bias, const T* addend, int64_t columns, int64_t stride) {
  for_each_pack<1>(columns, [&](int64_t j) {
    const int64_t at = blockIdx.x * stride + j;
    const float value = bias ? to_float(bias[j]) : 0.0f;
    c[at] = from_float<T>(addend ? value + to_float(addend[at]) : value);
  });
}

}  // namespace

void empty_product(Stream& stream, const Gemm& g) {
  const Tensor& addend = addend_of(g);
  visit_float(g.c.dtype, [&]<class T>() {
    visit_float(g.a.dtype, [&]<class Bias>() {
      empty_product_kernel<<<static_cast<unsigned>(g.c.shape[0]), kRowThreads, 0, native(stream)>>>(
          g.c.as<T>(), g.bias.empty() ? nullptr : g.bias.as<Bias>(),
          addend.empty() ? nullptr : addend.as<T>(), g.c.shape[1], strides_of(g).c);
    });
  });
  check_launch("gemm: empty_product");
}

void bias_backward(Stream& stream, const BiasBackward& a, const Tensor& partials) {
  visit_float(a.dy.dtype, [&]<class T>() {
    if (packable<T>(a.dy.shape[-1], a.dy.data, partials.data))
      launch_bias_backward<T, kPackSize<T>>(stream, a, partials);
    else
      launch_bias_backward<T, 1>(stream, a, partials);
  });
}

}  // namespace flatshard::cuda
