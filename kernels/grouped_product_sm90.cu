// Products of segments of rows, each with a matrix of its own (grouped_product.h), by the kernel in
// gemm_sm90.cuh.

#include "kernels/gemm_sm90.cuh"
#include "kernels/gemm_sm90.h"
#include "kernels/grouped_product.h"

namespace flatshard::cuda {
namespace {

static_assert(kSegmentRows == kGroupRows && kSegmentRows == ProductTiles::kDepth);

int segments_of(const GroupedProduct& g) { return static_cast<int>(g.offsets.size() - 1); }

// c of segments of rows, times w_e^T or w_e.
template <class T, bool kTransposeB, class End>
void launch_rows(Stream& stream, const GroupedProduct& g, const End& end) {
  const int segments = segments_of(g);
  launch_product<T>(stream, Operands<false, kTransposeB>{g.a, g.b, g.a.shape[1], g.b.shape[2], segments},
                    RowSegments{.offsets = g.offsets.as<int32_t>(),
                                .segments = segments,
                                .columns = tiles_of(end.columns, kTileColumns<End>),
                                .rows = static_cast<int>(g.a.shape[0]),
                                .steps = tiles_of(g.a.shape[1], ProductTiles::kDepth)},
                    end);
}

template <class T, class C>
PlainEnd<T, C> plain_end(const GroupedProduct& g) {
  return {.c = g.c.as<C>(),
          .addend = g.accumulate ? g.c.as<C>() : nullptr,
          .bias = nullptr,
          .stride = g.c.shape[-1],
          .columns = static_cast<int>(g.c.shape[-1]),
          .alpha = 1,
          .between = g.transpose_a ? g.c.shape[1] * g.c.shape[2] : 0};
}

template <class T, class C>
void launch_sums(Stream& stream, const GroupedProduct& g) {
  const int64_t M = g.c.shape[1], N = g.c.shape[2];
  launch_product<T>(
      stream, Operands<true, false>{g.a, g.b, M, N},
      TermSegments{.offsets = g.offsets.as<int32_t>(),
                   .segments = segments_of(g),
                   .grid = {tiles_of(M, ProductTiles::kRows), tiles_of(N, ProductTiles::kColumns)},
                   .rows = static_cast<int>(M)},
      plain_end<T, C>(g));
}

template <class T>
void launch(Stream& stream, const GroupedProduct& g) {
  if (g.transpose_a)
    return g.c.dtype == DType::f32 ? launch_sums<T, float>(stream, g) : launch_sums<T, T>(stream, g);
  if (const auto* const gated = std::get_if<SwigluForward>(&g.end))
    return visit_gate(gated->function, [&]<class Of>() {
      launch_rows<T, true>(stream, g, gated_end<T, Of>(*gated, g.c, nullptr));
    });
  if (const auto* const gradient = std::get_if<SwigluBackward>(&g.end))
    return visit_gate(gradient->function,
                      [&]<class Of>() { launch_rows<T, false>(stream, g, gradient_end<T, Of>(*gradient)); });
  g.transpose_b ? launch_rows<T, true>(stream, g, plain_end<T, T>(g))
                : launch_rows<T, false>(stream, g, plain_end<T, T>(g));
}

}  // namespace

bool multiplies_groups_on_sm90(const GroupedProduct& g) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto fits = [](const Tensor& t) {
    return rows_are_aligned(t, t.shape[-1]) && t.size() / t.shape[-1] <= kMost && t.shape[-1] <= kMost;
  };
  return has_gemm_sm90() && size_of(g.a.dtype) == 2 && fits(g.a) && fits(g.b) && fits(g.c) &&
         g.c.shape[-1] % 8 == 0;
}

bool ends_groups_on_sm90(const GroupedProduct& g) {
  return has_gemm_sm90() && fits_end(g.end, g.c, g.c.shape[-1], g.transpose_b);
}

void grouped_product_sm90(Stream& stream, const GroupedProduct& g) {
  g.a.dtype == DType::bf16 ? launch<bf16>(stream, g) : launch<f16>(stream, g);
}

}  // namespace flatshard::cuda
