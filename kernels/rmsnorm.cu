// RMSNorm on the GPU. Memory bandwidth limits it: each row is read and written once. The threads that share a
// row (row_blocks.cuh) keep it and their columns of w in registers. In the forward pass they load the next
// row before they add up the sums of this one, so that loads are in flight during the barrier. They load an
// addend only where they add it, as no registers are left before. In the backward pass copies to shared
// memory run two rows ahead, and rstd is loaded one row ahead, so no thread waits for a load that it has just
// issued. Rows that no block can keep are read and computed twice.
//
// The tile of a block of 512 threads is 1024 packs of 16 bytes in the forward pass and 512 in the backward
// pass. With 64 registers for bf16 on sm_90, two blocks fit on an SM, with 32 KiB of the next rows in flight;
// an H200 needs 4.8 TB/s * 0.8 us / 132 = 29 KiB. In the backward pass a block has 64 KiB of shared memory,
// and up to 96 KiB are in flight. Longer rows of a backward pass have two packs a thread and one block. The
// next limit is the rate of instructions, so xhat and dxhat stay in registers: a row of 4096 bf16 takes 1120
// cycles of instructions and 1600 of memory traffic.

#include "kernels/norm_types.h"
#include "kernels/rmsnorm.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

struct ForwardPointers {
  void* y;
  float* rstd;
  const void *x, *w, *addend;  // addend may be null
  float eps, offset;
  bool round_xhat;
  int64_t y_stride;  // elements between rows
};

template <class T, class W, int N, int kPacks, bool kWide>
__global__ void __launch_bounds__(kRowThreads, 2) rmsnorm_forward_kernel(ForwardPointers p, int rows, int C) {
  using Part = RowPart<N, kPacks, kWide>;
  const W* w = static_cast<const W*>(p.w);
  const auto load_x = [&](int row, int slab) {
    return Part::load(static_cast<const T*>(p.x) + static_cast<int64_t>(row) * C, slab, C, row < rows);
  };
  auto weight = Part::load(w, 0, C);
  auto x = load_x(first_row(), 0);
  for_each_row(rows, [&](int row, int next_row, int turn) {
    const auto next = load_x(kWide ? rows : next_row, 0);
    RowSums<1> squares;
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) x = load_x(row, slab);
      Part::for_each_element(
          [&](int k, int j) { squares.value[0] = fmaf(x(k, j), x(k, j), squares.value[0]); });
    });
    squares.add_up(turn);
    const float rstd = 1.0f / sqrtf(squares.value[0] / static_cast<float>(C) + p.eps);
    if (threadIdx.x == 0 && row < rows) p.rstd[row] = rstd;
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) x = load_x(row, slab), weight = Part::load(w, slab, C);
      typename Part::Floats y;
      Part::for_each_element([&](int k, int j) { y[k][j] = x(k, j) * rstd; });
      if (p.round_xhat) Part::template round<T>(y);
      Part::for_each_element([&](int k, int j) { y[k][j] *= weight(k, j) + p.offset; });
      if (row >= rows) return;
      if (p.addend) {
        const auto addend =
            Part::load(static_cast<const T*>(p.addend) + static_cast<int64_t>(row) * C, slab, C);
        Part::for_each_element([&](int k, int j) { y[k][j] += addend(k, j); });
      }
      Part::store(static_cast<T*>(p.y) + static_cast<int64_t>(row) * p.y_stride, slab, C, y);
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
    rmsnorm_backward_kernel(BackwardPointers p, int rows, int C) {
  using Part = RowPart<N, kPacks, kWide>;
  const W* w = static_cast<const W*>(p.w);
  BlockSums<N, kPacks, kWide> dw{p.partial_dw ? p.partial_dw + static_cast<int64_t>(blockIdx.x) * C : nullptr,
                                 C};
  const auto rstd_of = [&](int row) { return row < rows ? p.rstd[row] : 0.0f; };
  auto weight = Part::load(w, 0, C);
  float next_rstd = rstd_of(first_row());
  BackwardRow<T, N, kPacks, kWide> in(p.x, p.dy, p.accumulate_dx ? p.dx : nullptr, rows, C);
  for_each_row(rows, [&](int row, int next_row, int turn) {
    if (!kWide) in.take_x_dy(row, 0, turn);
    const float rstd = next_rstd;
    next_rstd = rstd_of(next_row);
    typename Part::Floats xhat, dxhat;
    const auto compute = [&](int slab) {
      if (kWide) in.take_x_dy(row, slab, turn), weight = Part::load(w, slab, C);
      Part::for_each_element([&](int k, int j) {
        xhat[k][j] = in.x(k, j) * rstd;
        dxhat[k][j] = in.dy(k, j) * (weight(k, j) + p.offset);
      });
    };
    RowSums<1> dot;
    Part::for_each_slab(C, [&](int slab) {
      compute(slab);
      dw.begin(slab, row == first_row());
      Part::for_each_element(
          [&](int k, int j) { dot.value[0] = fmaf(dxhat[k][j], xhat[k][j], dot.value[0]); });
      const auto add_to_dw = [&](const typename Part::Floats& factor) {
        Part::for_each_element(
            [&](int k, int j) { dw.sum[k][j] = fmaf(in.dy(k, j), factor[k][j], dw.sum[k][j]); });
      };
      if (p.round_xhat) {
        typename Part::Floats rounded;
        Part::for_each_element([&](int k, int j) { rounded[k][j] = xhat[k][j]; });
        Part::template round<T>(rounded);
        add_to_dw(rounded);
      } else {
        add_to_dw(xhat);
      }
      dw.end(slab);
    });
    dot.add_up(turn);
    const float mean = dot.value[0] / static_cast<float>(C);
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) compute(slab);
      in.take_dx(row, slab, turn);
      typename Part::Floats gradient;
      Part::for_each_element([&](int k, int j) {
        gradient[k][j] = rstd * (dxhat[k][j] - xhat[k][j] * mean);
        if (p.accumulate_dx) gradient[k][j] += in.dx(k, j);
      });
      if (row < rows) Part::store(static_cast<T*>(p.dx) + static_cast<int64_t>(row) * C, slab, C, gradient);
    });
  });
  dw.finish();
}

}  // namespace

void rmsnorm_forward(Stream& stream, const RmsNormForward& a, int64_t y_stride) {
  const ForwardPointers p{a.y.data, a.rstd.as<float>(), a.x.data,     a.w.data, a.addend.data,
                          a.eps,    a.offset,           a.round_xhat, y_stride};
  const int64_t rows = a.x.rows(), C = a.x.shape[-1];
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    visit_row_grid<T, 2>(
        rows, C, packable<T>(C, a.x.data, a.y.data, a.w.data, a.addend.data) && packable<T>(y_stride),
        kRowGridBlocks, [&]<int N, int kPacks, bool kWide>(const RowGrid& grid) {
          rmsnorm_forward_kernel<T, W, N, kPacks, kWide><<<grid.blocks, grid.block, 0, native(stream)>>>(
              p, static_cast<int>(rows), static_cast<int>(C));
        });
  });
  check_launch(stream, "rmsnorm_forward");
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
                           constexpr int kShared = BackwardRow<T, N, kPacks, kWide>::kSharedBytes;
                           const auto kernel = rmsnorm_backward_kernel<T, W, N, kPacks, kWide>;
                           allow_shared_bytes(kernel, kShared);
                           kernel<<<grid.blocks, grid.block, kShared, native(stream)>>>(
                               p, static_cast<int>(rows), static_cast<int>(C));
                           check_launch(stream, "rmsnorm_backward");
                           if (!partial_dw.empty())
                             add_partials<N>(stream, "rmsnorm_backward: add_partials",
                                             {a.dw.as<float>(), nullptr}, partial_dw, grid.blocks, C,
                                             a.accumulate);
                         });
  });
}

}  // namespace flatshard::cuda
