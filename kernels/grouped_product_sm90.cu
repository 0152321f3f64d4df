// Products of segments of rows, each with a matrix of its own (grouped_product.h), by the kernel in
// gemm_sm90.cuh.

#include "kernels/gemm_sm90.cuh"
#include "kernels/gemm_sm90.h"
#include "kernels/grouped_product.h"

namespace flatshard::cuda {
namespace {

static_assert(kSegmentRows == kGroupRows && kSegmentRows == ProductTiles::kDepth);

int segments_of(const GroupedProduct& g) { return static_cast<int>(g.offsets.size() - 1); }

const int* index_of(const GroupedProduct& g) { return g.rows.empty() ? nullptr : g.rows.as<int32_t>(); }

// c of segments of rows, times w_e^T or w_e.
template <class T, bool kTransposeB, Gathers kGathers, class End>
void launch_rows(Stream& stream, const GroupedProduct& g, const End& end) {
  const int segments = segments_of(g);
  const GemmStrides strides = strides_of(g);
  launch_product<T>(stream,
                    Operands<false, kTransposeB, kGathers>{g.a, g.b, strides.a, strides.b, segments,
                                                           g.between, index_of(g)},
                    RowSegments{.offsets = g.offsets.as<int32_t>(),
                                .segments = segments,
                                .columns = tiles_of(end.columns, kTileColumns<End>),
                                .rows = static_cast<int>(g.c.shape[0]),
                                .steps = tiles_of(g.a.shape[1], ProductTiles::kDepth)},
                    end);
}
template <class T, class End>
void launch_forward(Stream& stream, const GroupedProduct& g, const End& end) {
  g.rows.empty() ? launch_rows<T, true, Gathers::none>(stream, g, end)
                 : launch_rows<T, true, Gathers::a>(stream, g, end);
}

template <class T, class C>
PlainEnd<T, C> plain_end(const GroupedProduct& g) {
  return {.c = g.c.as<C>(),
          .addend = g.accumulate ? g.c.as<C>() : nullptr,
          .bias = nullptr,
          .stride = strides_of(g).c,
          .columns = static_cast<int>(g.c.shape[-1]),
          .alpha = g.alpha,
          .between = !g.transpose_a ? 0
                     : g.between    ? g.between
                                    : g.c.shape[1] * g.c.shape[2]};
}

template <class T, class C, Gathers kGathers>
void launch_sums(Stream& stream, const GroupedProduct& g) {
  const int64_t M = g.c.shape[1], N = g.c.shape[2];
  const GemmStrides strides = strides_of(g);
  launch_product<T>(
      stream, Operands<true, false, kGathers>{g.a, g.b, strides.a, strides.b, 1, 0, index_of(g)},
      TermSegments{.offsets = g.offsets.as<int32_t>(),
                   .segments = segments_of(g),
                   .grid = {tiles_of(M, ProductTiles::kRows), tiles_of(N, ProductTiles::kColumns)},
                   .rows = static_cast<int>(M)},
      plain_end<T, C>(g));
}

template <class T, class C>
void launch_sums(Stream& stream, const GroupedProduct& g) {
  g.rows.empty() ? launch_sums<T, C, Gathers::none>(stream, g) : launch_sums<T, C, Gathers::b>(stream, g);
}

template <class T>
void launch(Stream& stream, const GroupedProduct& g) {
  if (g.transpose_a)
    return g.c.dtype == DType::f32 ? launch_sums<T, float>(stream, g) : launch_sums<T, T>(stream, g);
  if (const auto* const gated = std::get_if<SwigluForward>(&g.end))
    return visit_gate(gated->function, [&]<class Of>() {
      launch_forward<T>(stream, g, gated_end<T, Of>(*gated, g.c, nullptr));
    });
  if (const auto* const gradient = std::get_if<SwigluBackward>(&g.end))
    return visit_gate(gradient->function, [&]<class Of>() {
      launch_rows<T, false, Gathers::none>(stream, g, gradient_end<T, Of>(*gradient));
    });
  g.transpose_b ? launch_forward<T>(stream, g, plain_end<T, T>(g))
                : launch_rows<T, false, Gathers::none>(stream, g, plain_end<T, T>(g));
}

}  // namespace

void grouped_product_sm90(Stream& stream, const GroupedProduct& g) {
  g.a.dtype == DType::bf16 ? launch<bf16>(stream, g) : launch<f16>(stream, g);
}

}  // namespace flatshard::cuda
