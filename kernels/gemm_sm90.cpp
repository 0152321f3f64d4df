#include "kernels/gemm_sm90.h"

#include <algorithm>
#include <cstdint>

namespace flatshard::cuda {
namespace {

int64_t stride_of(int64_t stride, int64_t width) { return stride ? stride : width; }

bool fits_gated(const SwigluForward& f, const Tensor& c, int64_t stride) {
  const int64_t F = f.y.shape[-1];
  return f.gate.data == c.data && c.shape[-1] == 2 * F && F % 8 == 0 &&
         f.up.data == static_cast<char*>(c.data) + F * size_of(c.dtype) &&
         stride_of(f.row_stride, F) == stride && rows_are_aligned(f.y, stride_of(f.y_stride, F));
}

bool fits_gradient(const SwigluBackward& f, const Tensor& c, int64_t stride) {
  const int64_t F = c.shape[-1], between = stride_of(f.row_stride, F);
  return f.dy.data == c.data && f.dy.shape[-1] == F && stride == F && rows_are_aligned(f.gate, between) &&
         rows_are_aligned(f.up, between) && rows_are_aligned(f.dgate, between) &&
         rows_are_aligned(f.dup, between);
}

bool fits_rotation(const RopeForward& f, const Tensor& c, int64_t stride) {
  const int64_t tokens = f.y.shape[0], D = f.y.shape[2], width = f.y.shape[1] * D;
  return f.x.data == c.data && f.y.data == c.data && tokens == c.shape[0] && (D == 64 || D == 128) &&
         width <= c.shape[1] && c.shape[1] % D == 0 && stride_of(f.x_stride, width) == stride &&
         stride_of(f.y_stride, width) == stride && !f.interleaved && f.positions.size() == tokens &&
         f.table.shape[1] == D && reinterpret_cast<uintptr_t>(f.table.data) % 16 == 0;
}

}  // namespace

bool rows_are_aligned(const Tensor& matrix, int64_t stride) {
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && stride * size_of(matrix.dtype) % 16 == 0;
}

bool fits_end(const ProductEnd& end, const Tensor& c, int64_t stride, bool transpose_b) {
  if (const auto* const f = std::get_if<SwigluForward>(&end)) return transpose_b && fits_gated(*f, c, stride);
  if (const auto* const f = std::get_if<SwigluBackward>(&end))
    return !transpose_b && fits_gradient(*f, c, stride);
  if (const auto* const f = std::get_if<RopeForward>(&end))
    return transpose_b && fits_rotation(*f, c, stride);
  return std::holds_alternative<std::monostate>(end);
}

bool multiplies_on_sm90(const Gemm& g) {
  // Fit an int, with a tile more; and so do the tiles of c.
  constexpr int64_t kMostExtent = int64_t{1} << 30, kMostElements = int64_t{1} << 38;
  const auto [a, b, c] = strides_of(g);
  const auto fits = [](const Tensor& matrix) {
    return std::max(matrix.shape[0], matrix.shape[1]) <= kMostExtent;
  };
  return size_of(g.a.dtype) == 2 && fits(g.a) && fits(g.b) && g.c.size() <= kMostElements &&
         g.c.shape[1] % 8 == 0 && rows_are_aligned(g.a, a) && rows_are_aligned(g.b, b) &&
         rows_are_aligned(g.c, c) && (g.addend.empty() || rows_are_aligned(g.addend, c)) &&
         (g.bias.empty() || reinterpret_cast<uintptr_t>(g.bias.data) % 16 == 0);
}

bool ends_on_sm90(const Gemm& g) {
  if (std::holds_alternative<std::monostate>(g.end)) return true;
  const bool takes_bias = !std::holds_alternative<SwigluBackward>(g.end);
  return g.c.dtype == g.a.dtype && g.alpha == 1 && addend_of(g).empty() && !g.transpose_a &&
         (takes_bias || g.bias.empty()) && fits_end(g.end, g.c, strides_of(g).c, g.transpose_b);
}

}  // namespace flatshard::cuda
