// The bias gradient and products with K = 0 on the GPU. cublas_gemm.cpp has the other products.
//
// cuBLASLt could compute db beside dw, as an epilogue (BGRADA, BGRADB). But it cannot add to db, it sums in
// an order that the library chooses, and it would save only one read of dy, an estimated 0.1% of a step.

#include "kernels/gemm.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

// A thread block sums a part of the rows: each warp sums a slice of columns of every 16th row, then a tree
// joins the 16 warps. Memory bandwidth limits it: a thread has up to 8 loads of 16 bytes in flight, 512
// threads 64 KiB. For bf16 it has 40 registers, and the tree takes 16 KiB of shared memory, so three blocks
// fit on an SM.
template <class T, int N>
__global__ void __launch_bounds__(kRowThreads, 2)
    bias_backward_kernel(float* partials, const T* dy, int64_t rows, int C, int64_t stride) {
  const int i = (static_cast<int>(blockIdx.x) * kWarp + static_cast<int>(threadIdx.x)) * N;
  const int64_t step = static_cast<int64_t>(gridDim.y) * blockDim.y;
  float sum[N] = {};
  if (i < C)
#pragma unroll 8
    for (int64_t row = static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; row < rows; row += step) {
      const Pack<T, N> v = load<T, N>(dy + row * stride + i);
      for (int k = 0; k < N; ++k) sum[k] += to_float(v.element[k]);
    }
  join_rows<N>(sum);
  if (threadIdx.y > 0 || i >= C) return;
  using Row = PartialRow<N>;
  for (int piece = 0; piece < Row::kPieces; ++piece)
    store<float, Row::kPiece>(partials + static_cast<int64_t>(blockIdx.y) * C + Row{C}.place(i, piece),
                              Row::piece_of(sum + piece * Row::kPiece));
}

template <class T, int N>
void launch_bias_backward(Stream& stream, const BiasBackward& a, const Tensor& partials) {
  const int64_t C = a.dy.shape[-1], parts = partials.shape[0], stride = a.dy_stride ? a.dy_stride : C;
  const dim3 grid(static_cast<unsigned>((C + kWarp * N - 1) / (kWarp * N)), static_cast<unsigned>(parts));
  bias_backward_kernel<T, N><<<grid, dim3(kWarp, kColumnRows), 0, native(stream)>>>(
      partials.as<float>(), a.dy.as<T>(), a.dy.rows(), static_cast<int>(C), stride);
  check_launch(stream, "bias_backward");
  add_partials<N>(stream, "bias_backward: add_partials", {a.db.as<float>(), nullptr}, partials, parts, C,
                  a.accumulate);
}

// A thread block owns a row. Memory bandwidth limits it; with at most 22 registers, all 2048 threads of an SM
// are resident.
template <class T, class Bias>
__global__ void __launch_bounds__(kRowThreads)
    empty_product_kernel(T* c, const Bias* bias, const T* addend, int64_t columns, int64_t stride) {
  for (int64_t j = threadIdx.x; j < columns; j += kRowThreads) {
    const int64_t at = blockIdx.x * stride + j;
    const float value = bias ? to_float(bias[j]) : 0.0f;
    c[at] = from_float<T>(addend ? value + to_float(addend[at]) : value);
  }
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
  check_launch(stream, "gemm: empty_product");
}

void bias_backward(Stream& stream, const BiasBackward& a, const Tensor& partials) {
  visit_float(a.dy.dtype, [&]<class T>() {
    if (packable<T>(a.dy.shape[-1], a.dy.data, partials.data) && packable<T>(a.dy_stride))
      launch_bias_backward<T, kPackSize<T>>(stream, a, partials);
    else
      launch_bias_backward<T, 1>(stream, a, partials);
  });
}

}  // namespace flatshard::cuda
