// RMSNorm on the GPU. Its limiting resource is memory bandwidth: each row is read and written once. The
// threads that share a row (row_blocks.cuh) keep it and their columns of w in registers, and load the next
// row before they add up the sums of this one, so that loads are in flight during the barrier.
//
// The tile of a block of 512 threads is 1024 packs of 16 bytes of x in the forward pass, and 512 of x, dy and
// dx in the backward pass: one row of 4096 bf16, or 32 of 128. Its registers per thread, for bf16 on sm_90:
//   forward   63: two packs of x, of the next x and of w, 8 registers each
//   backward  64: x, dy, the next x and dy, w and dx, 4 each; dw 8
// 64 registers let two blocks, 65536 / (2 * 512), fit on an SM, half of its threads. These have 1024 * 32 B =
// 32 KiB of the next rows in flight, more than the 4.8 TB/s * 0.8 us / 132 = 29 KiB that cover the latency of
// an H200's memory, as estimated. In the backward pass, rows of more than 512 packs have two packs a thread,
// 119 registers and one block on an SM. Shared memory is 16.1 of 228 KiB a block, for the tree over its rows
// and the sums over a row. A partial row of dw costs 8 C bytes, half of them read back from the L2 cache:
// for 4096 rows of bf16, of which there are 256, 6% of the traffic.

#include "kernels/norm_types.h"
#include "kernels/rmsnorm.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

struct ForwardPointers {
  void* y;
  float* rstd;
  const void *x, *w;
  float eps, offset;
  bool round_xhat;
};

template <class T, class W, int N, int kPacks, bool kWide>
__global__ void __launch_bounds__(kRowThreads, 2)
    rmsnorm_forward_kernel(ForwardPointers p, int64_t rows, int C) {
  using Part = RowPart<N, kPacks, kWide>;
  const W* w = static_cast<const W*>(p.w);
  const auto load_x = [&](int64_t row, int slab) {
    return Part::load(static_cast<const T*>(p.x) + row * C, slab, C, row < rows);
  };
  auto weight = Part::load(w, 0, C);
  auto x = load_x(static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, 0);
  for_each_row(rows, [&](int64_t row, int64_t next_row, int turn) {
    auto next = load_x(kWide ? rows : next_row, 0);
    RowSums<1> squares;
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) x = load_x(row, slab);
      Part::for_each_element([&](int k, int j) {
        const float v = to_float(x.pack[k].element[j]);
        squares.value[0] = fmaf(v, v, squares.value[0]);
      });
    });
    squares.add_up(turn);
    const float rstd = 1.0f / sqrtf(squares.value[0] / static_cast<float>(C) + p.eps);
    if (threadIdx.x == 0 && row < rows) p.rstd[row] = rstd;
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) x = load_x(row, slab), weight = Part::load(w, slab, C);
      Part::for_each_element([&](int k, int j) {
        const float xhat = to_float(x.pack[k].element[j]) * rstd;
        x.pack[k].element[j] = from_float<T>((p.round_xhat ? round_to<T>(xhat) : xhat) *
                                             (to_float(weight.pack[k].element[j]) + p.offset));
      });
      if (row < rows) Part::store(static_cast<T*>(p.y) + row * C, slab, C, x);
    });
    x = next;
  });
}

struct BackwardPointers {
  void* dx;
  float* partial_dw;  // null: dw is not wanted
  const void *dy, *x, *w;
  const float* rstd;
  float offset;
  bool round_xhat, accumulate_dx;
};

template <class T, class W, int N, int kPacks, bool kWide>
__global__ void __launch_bounds__(kRowThreads, kPacks == 1 ? 2 : 1)
    rmsnorm_backward_kernel(BackwardPointers p, int64_t rows, int C) {
  using Part = RowPart<N, kPacks, kWide>;
  const W* w = static_cast<const W*>(p.w);
  BlockSums<N, kPacks, kWide> dw{p.partial_dw ? p.partial_dw + static_cast<int64_t>(blockIdx.x) * C : nullptr,
                                 C};
  auto weight = Part::load(w, 0, C);
  RowInputs<T, Part> in, next;
  in.load(p.x, p.dy, static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, rows, 0, C);
  for_each_row(rows, [&](int64_t row, int64_t next_row, int turn) {
    next.load(p.x, p.dy, kWide ? rows : next_row, rows, 0, C);
    const float rstd = row < rows ? p.rstd[row] : 0.0f;
    const auto load_slab = [&](int slab) {
      in.load(p.x, p.dy, row, rows, slab, C);
      weight = Part::load(w, slab, C);
    };
    RowSums<1> dot;
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) load_slab(slab);
      dw.begin(slab, row == blockIdx.x);
      Part::for_each_element([&](int k, int j) {
        const float xhat = to_float(in.x.pack[k].element[j]) * rstd, g = to_float(in.dy.pack[k].element[j]);
        dot.value[0] = fmaf(g * (to_float(weight.pack[k].element[j]) + p.offset), xhat, dot.value[0]);
        dw.sum[k][j] = fmaf(g, p.round_xhat ? round_to<T>(xhat) : xhat, dw.sum[k][j]);
      });
      dw.end(slab);
    });
    dot.add_up(turn);
    const float mean = dot.value[0] / static_cast<float>(C);
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) load_slab(slab);
      T* dx = static_cast<T*>(p.dx) + row * C;
      auto out = Part::load(dx, slab, C, p.accumulate_dx && row < rows);
      Part::for_each_element([&](int k, int j) {
        const float xhat = to_float(in.x.pack[k].element[j]) * rstd;
        const float dxhat =
            to_float(in.dy.pack[k].element[j]) * (to_float(weight.pack[k].element[j]) + p.offset);
        const float gradient = rstd * (dxhat - xhat * mean);
        T& at = out.pack[k].element[j];
        at = from_float<T>(p.accumulate_dx ? to_float(at) + gradient : gradient);
      });
      if (row < rows) Part::store(dx, slab, C, out);
    });
    in = next;
  });
  dw.finish();
}

}  // namespace

void rmsnorm_forward(Stream& stream, const RmsNormForward& a) {
  const ForwardPointers p{a.y.data, a.rstd.as<float>(), a.x.data, a.w.data, a.eps, a.offset, a.round_xhat};
  const int64_t rows = a.x.rows(), C = a.x.shape[-1];
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    visit_row_grid<T, 2>(rows, C, packable<T>(C, a.x.data, a.y.data, a.w.data), kRowGridBlocks,
                         [&]<int N, int kPacks, bool kWide>(const RowGrid& grid) {
                           rmsnorm_forward_kernel<T, W, N, kPacks, kWide>
                               <<<grid.blocks, grid.block, 0, native(stream)>>>(p, rows, static_cast<int>(C));
                         });
  });
  check_launch("rmsnorm_forward");
}

void rmsnorm_backward(Stream& stream, const RmsNormBackward& a, const Tensor& partial_dw) {
  const BackwardPointers p{a.dx.data,      partial_dw.empty() ? nullptr : partial_dw.as<float>(),
                           a.dy.data,      a.x.data,
                           a.w.data,       a.rstd.as<float>(),
                           a.offset,       a.round_xhat,
                           a.accumulate_dx};
  const int64_t rows = a.x.rows(), C = a.x.shape[-1];
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    visit_row_grid<T, 1>(rows, C, packable<T>(C, a.x.data, a.dx.data, a.dy.data, a.w.data, partial_dw.data),
                         partial_dw.shape[0], [&]<int N, int kPacks, bool kWide>(const RowGrid& grid) {
                           rmsnorm_backward_kernel<T, W, N, kPacks, kWide>
                               <<<grid.blocks, grid.block, 0, native(stream)>>>(p, rows, static_cast<int>(C));
                           check_launch("rmsnorm_backward");
                           if (!partial_dw.empty())
                             add_partials<N>(stream, "rmsnorm_backward: add_partials",
                                             {a.dw.as<float>(), nullptr}, partial_dw, grid.blocks, C,
                                             a.accumulate);
                         });
  });
}

}  // namespace flatshard::cuda
