// LayerNorm on the GPU, by the loop over rows of RMSNorm (rmsnorm.cu), with the same tiles, limit, registers
// and copies. Both passes read w, and the forward pass b, for each row, from the L1 cache. The forward pass
// sums x and then (x - mean)^2 over the row in registers. The backward pass adds up two sums by one barrier.
// In a partial row db follows dw.

#include "kernels/layernorm.h"
#include "kernels/norm_types.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

struct ForwardPointers {
  void* y;
  float *mean, *rstd;
  const void *x, *w, *b;
  float eps;
  int64_t y_stride;  // elements between rows
};

template <class T, class W, int N, int kPacks, bool kWide>
__global__ void __launch_bounds__(kRowThreads, sizeof(W) == sizeof(T) ? 2 : 1)
    layernorm_forward_kernel(ForwardPointers p, int rows, int C) {
  using Part = RowPart<N, kPacks, kWide>;
  const W *w = static_cast<const W*>(p.w), *b = static_cast<const W*>(p.b);
  const auto load_x = [&](int row, int slab) {
    return Part::load(static_cast<const T*>(p.x) + static_cast<int64_t>(row) * C, slab, C, row < rows);
  };
  auto x = load_x(first_row(), 0);
  for_each_row(rows, [&](int row, int next_row, int) {
    const auto next = load_x(kWide ? rows : next_row, 0);
    RowSums<1> total, squares;
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) x = load_x(row, slab);
      Part::for_each_element([&](int k, int j) { total.value[0] += x(k, j); });
    });
    total.add_up(0);
    const float mean = total.value[0] / static_cast<float>(C);
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) x = load_x(row, slab);
      Part::for_each_element([&](int k, int j) {
        const float centred = Part::column(slab, k) < C ? x(k, j) - mean : 0.0f;
        squares.value[0] = fmaf(centred, centred, squares.value[0]);
      });
    });
    squares.add_up(1);
    const float rstd = 1.0f / sqrtf(squares.value[0] / static_cast<float>(C) + p.eps);
    if (threadIdx.x == 0 && row < rows) {
      p.mean[row] = mean;
      p.rstd[row] = rstd;
    }
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) x = load_x(row, slab);
      const auto weight = Part::load(w, slab, C), bias = Part::load(b, slab, C);
      typename Part::Floats y;
      Part::for_each_element(
          [&](int k, int j) { y[k][j] = fmaf((x(k, j) - mean) * rstd, weight(k, j), bias(k, j)); });
      if (row < rows) Part::store(static_cast<T*>(p.y) + static_cast<int64_t>(row) * p.y_stride, slab, C, y);
    });
    x = next;
  });
}

struct BackwardPointers {
  void* dx;
  float* partials;  // null: neither dw nor db is wanted
  const void *dy, *x, *w;
  const float *mean, *rstd;
  bool accumulate_dx;
};

template <class T, class W, int N, int kPacks, bool kWide>
__global__ void __launch_bounds__(kRowThreads, kPacks == 1 ? 2 : 1)
    layernorm_backward_kernel(BackwardPointers p, int rows, int C) {
  using Part = RowPart<N, kPacks, kWide>;
  const W* w = static_cast<const W*>(p.w);
  float* partial = p.partials ? p.partials + static_cast<int64_t>(blockIdx.x) * 2 * C : nullptr;
  BlockSums<N, kPacks, kWide> dw{partial, C}, db{partial ? partial + C : nullptr, C};
  const auto terms_of = [&](int row) {
    return row < rows ? make_float2(p.mean[row], p.rstd[row]) : make_float2(0.0f, 0.0f);
  };
  float2 next_terms = terms_of(first_row());
  BackwardRow<T, N, kPacks, kWide> in(p.x, p.dy, p.accumulate_dx ? p.dx : nullptr, rows, C);
  for_each_row(rows, [&](int row, int next_row, int turn) {
    if (!kWide) in.take_x_dy(row, 0, turn);
    const float mean = next_terms.x, rstd = next_terms.y;
    next_terms = terms_of(next_row);
    typename Part::Floats xhat, dxhat;
    const auto compute = [&](int slab) {
      if (kWide) in.take_x_dy(row, slab, turn);
      const auto weight = Part::load(w, slab, C);
      Part::for_each_element([&](int k, int j) {
        xhat[k][j] = (in.x(k, j) - mean) * rstd;
        dxhat[k][j] = in.dy(k, j) * weight(k, j);
      });
    };
    RowSums<2> sums;  // sums of dxhat and of dxhat xhat
    Part::for_each_slab(C, [&](int slab) {
      compute(slab);
      dw.begin(slab, row == first_row());
      db.begin(slab, row == first_row());
      Part::for_each_element([&](int k, int j) {
        sums.value[0] += dxhat[k][j];
        sums.value[1] = fmaf(dxhat[k][j], xhat[k][j], sums.value[1]);
        dw.sum[k][j] = fmaf(in.dy(k, j), xhat[k][j], dw.sum[k][j]);
        db.sum[k][j] += in.dy(k, j);
      });
      dw.end(slab);
      db.end(slab);
    });
    sums.add_up(turn);
    const float mean_dxhat = sums.value[0] / static_cast<float>(C);
    const float mean_dot = sums.value[1] / static_cast<float>(C);
    Part::for_each_slab(C, [&](int slab) {
      if (kWide) compute(slab);
      in.take_dx(row, slab, turn);
      typename Part::Floats gradient;
      Part::for_each_element([&](int k, int j) {
        gradient[k][j] = rstd * (dxhat[k][j] - mean_dxhat - xhat[k][j] * mean_dot);
        if (p.accumulate_dx) gradient[k][j] += in.dx(k, j);
      });
      if (row < rows) Part::store(static_cast<T*>(p.dx) + static_cast<int64_t>(row) * C, slab, C, gradient);
    });
  });
  dw.finish();
  db.finish();
}

}  // namespace

void layernorm_forward(Stream& stream, const LayerNormForward& a, int64_t y_stride) {
  const ForwardPointers p{
      a.y.data, a.mean.as<float>(), a.rstd.as<float>(), a.x.data, a.w.data, a.b.data, a.eps, y_stride};
  const int64_t rows = a.x.rows(), C = a.x.shape[-1];
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    visit_row_grid<T, 2>(
        rows, C, packable<T>(C, a.x.data, a.y.data, a.w.data, a.b.data) && packable<T>(y_stride),
        kRowGridBlocks, [&]<int N, int kPacks, bool kWide>(const RowGrid& grid) {
          layernorm_forward_kernel<T, W, N, kPacks, kWide><<<grid.blocks, grid.block, 0, native(stream)>>>(
              p, static_cast<int>(rows), static_cast<int>(C));
        });
  });
  check_launch(stream, "layernorm_forward");
}

void layernorm_backward(Stream& stream, const LayerNormBackward& a, const Tensor& partials) {
  const BackwardPointers p{.dx = a.dx.data,
                           .partials = partials.empty() ? nullptr : partials.as<float>(),
                           .dy = a.dy.data,
                           .x = a.x.data,
                           .w = a.w.data,
                           .mean = a.mean.as<float>(),
                           .rstd = a.rstd.as<float>(),
                           .accumulate_dx = a.accumulate_dx};
  const Totals totals{a.dw.empty() ? nullptr : a.dw.as<float>(), a.db.empty() ? nullptr : a.db.as<float>()};
  const int64_t rows = a.x.rows(), C = a.x.shape[-1];
  visit_norm(a.x.dtype, a.w.dtype, [&]<class T, class W>() {
    visit_row_grid<T, 1>(rows, C, packable<T>(C, a.x.data, a.dx.data, a.dy.data, a.w.data, partials.data),
                         partials.shape[0], [&]<int N, int kPacks, bool kWide>(const RowGrid& grid) {
                           constexpr int kShared = BackwardRow<T, N, kPacks, kWide>::kSharedBytes;
                           const auto kernel = layernorm_backward_kernel<T, W, N, kPacks, kWide>;
                           allow_shared_bytes(kernel, kShared);
                           kernel<<<grid.blocks, grid.block, kShared, native(stream)>>>(
                               p, static_cast<int>(rows), static_cast<int>(C));
                           check_launch(stream, "layernorm_backward");
                           if (p.partials)
                             add_partials<N>(stream, "layernorm_backward: add_partials", totals, partials,
                                             grid.blocks, C, a.accumulate);
                         });
  });
}

}  // namespace flatshard::cuda
