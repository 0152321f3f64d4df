#include "kernels/gemm_widened.h"

#include <algorithm>
#include <utility>

#include "kernels/simd.h"

namespace flatshard {
namespace {

using namespace simd;

constexpr int64_t kDepth = 1024;  // length of a block of K, whose widened operands stay in a near cache

int64_t aligned(int64_t floats) { return (floats * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64; }

// out = in, (rows, columns), in matrices whose rows are out_row and in_row elements long.
template <class To, class From>
void convert(To* out, int64_t out_row, const From* in, int64_t in_row, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for_each_vector(columns, [&](int64_t i, auto lanes) {
      store(out + r * out_row + i, load(in + r * in_row + i, lanes), lanes);
    });
}

}  // namespace

WidenedTile::WidenedTile(const GemmTile& tile) : tile_(tile) {
  const int64_t depth = std::min(tile.K, kDepth), last = (tile.K - 1) % kDepth + 1;
  products_[0] = make_tile(block(depth, true));
  if (tile.K > kDepth) products_[1] = make_tile(block(depth, false));
  if (tile.K > kDepth) products_[2] = last == depth ? products_[1] : make_tile(block(last, false));
  for (const auto& product : products_)
    if (product) product_bytes_ = std::max(product_bytes_, (tile_scratch_bytes(*product) + 63) / 64 * 64);
  a_bytes_ = aligned(uncrowded(tile.M) * depth);
  b_bytes_ = aligned(uncrowded(tile.N) * depth);
  if (tile.out == DType::bf16) c_bytes_ = aligned(tile.M * tile.N);
}

// The f32 product of a block of K. In scratch its operands keep the layout of their matrices.
GemmTile WidenedTile::block(int64_t depth, bool first) const {
  GemmTile f32 = tile_;
  f32.K = depth;
  f32.lda = tile_.transpose_a ? uncrowded(tile_.M) : depth;
  f32.ldb = tile_.transpose_b ? depth : uncrowded(tile_.N);
  if (tile_.out == DType::bf16) f32.ldc = tile_.N;
  f32.in = f32.out = DType::f32;
  f32.bias = tile_.bias && first;
  f32.accumulate = tile_.accumulate || !first;
  return f32;
}

int64_t WidenedTile::scratch_bytes() const {
  return a_bytes_ + b_bytes_ + c_bytes_ + aligned(tile_.N) + product_bytes_;
}

void WidenedTile::run(const TileData& data) const {
  const auto& [M, N, K, lda, ldb, ldc, in, out, transpose_a, transpose_b, bias, accumulate, alpha] = tile_;
  char* at = static_cast<char*>(data.scratch);
  const auto take = [&](int64_t bytes) { return reinterpret_cast<float*>(std::exchange(at, at + bytes)); };
  float *wide_a = take(a_bytes_), *wide_b = take(b_bytes_), *wide_c = take(c_bytes_);
  float* wide_bias = take(aligned(N));
  const bool rounds = out == DType::bf16;
  if (bias) convert(wide_bias, N, static_cast<const bf16*>(data.bias), N, 1, N);
  if (rounds && accumulate) convert(wide_c, N, static_cast<const bf16*>(data.c), ldc, M, N);

  for (int64_t k = 0; k < K; k += kDepth) {
    const int64_t depth = std::min(kDepth, K - k);
    const bf16* a = static_cast<const bf16*>(data.a) + (transpose_a ? k * lda : k);
    const bf16* b = static_cast<const bf16*>(data.b) + (transpose_b ? k : k * ldb);
    transpose_a ? convert(wide_a, uncrowded(M), a, lda, depth, M) : convert(wide_a, depth, a, lda, M, depth);
    transpose_b ? convert(wide_b, depth, b, ldb, N, depth) : convert(wide_b, uncrowded(N), b, ldb, depth, N);
    const TileProduct& product = *products_[k == 0 ? 0 : k + kDepth < K ? 1 : 2];
    run_tile(product, {.c = rounds ? static_cast<void*>(wide_c) : data.c,
                       .a = wide_a,
                       .b = wide_b,
                       .bias = k == 0 && bias ? wide_bias : nullptr,
                       .scratch = at});
  }
  if (rounds) convert(static_cast<bf16*>(data.c), ldc, wide_c, N, M, N);
}

}  // namespace flatshard
