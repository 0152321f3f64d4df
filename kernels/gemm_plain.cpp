// Tiles of a matrix product without a library: operands are unpacked to fp32 strips, and a block of c in
// registers is summed over K in ascending order.

#include <algorithm>

#include "kernels/gemm_tile.h"
#include "kernels/simd.h"

namespace flatshard {
namespace {

using namespace simd;

constexpr int kRows = 6;              // rows of c in registers
constexpr int kColumns = 2 * kWidth;  // columns of c in registers
constexpr int64_t kDepth = 512;       // values of K per step, so that strips fit the L1 cache

template <class T>
float element(const void* matrix, int64_t row, int64_t column, int64_t row_length, bool transposed) {
  const int64_t at = transposed ? column * row_length + row : row * row_length + column;
  return static_cast<float>(static_cast<const T*>(matrix)[at]);
}

// Unpacks kColumns columns of b, from j on, as (depth, kColumns); zero past the tile.
template <class T>
void pack_b(const GemmTile& t, const void* b, int64_t k, int64_t depth, int64_t j, float* strip) {
  const int columns = static_cast<int>(std::min<int64_t>(kColumns, t.N - j));
  for (int64_t d = 0; d < depth; ++d)
    for (int c = 0; c < kColumns; ++c)
      strip[d * kColumns + c] = c < columns ? element<T>(b, k + d, j + c, t.ldb, t.transpose_b) : 0.0f;
}

// Unpacks kRows rows of a, from i on, as (depth, kRows); zero past the tile.
template <class T>
void pack_a(const GemmTile& t, const void* a, int64_t k, int64_t depth, int64_t i, float* strip) {
  const int rows = static_cast<int>(std::min<int64_t>(kRows, t.M - i));
  for (int r = 0; r < kRows; ++r)
    for (int64_t d = 0; d < depth; ++d)
      strip[d * kRows + r] = r < rows ? element<T>(a, i + r, k + d, t.lda, t.transpose_a) : 0.0f;
}

// sums (kRows, kColumns) += strip_a^T strip_b
void multiply(const float* strip_a, const float* strip_b, int64_t depth, float* sums) {
  Floats block[kRows][2];
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < 2; ++c) block[r][c] = load(sums + r * kColumns + c * kWidth);
  for (int64_t d = 0; d < depth; ++d) {
    const Floats b0 = load(strip_b + d * kColumns), b1 = load(strip_b + d * kColumns + kWidth);
    for (int r = 0; r < kRows; ++r) {
      const Floats a = splat(strip_a[d * kRows + r]);
      block[r][0] = fma(a, b0, block[r][0]);
      block[r][1] = fma(a, b1, block[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < 2; ++c) store(sums + r * kColumns + c * kWidth, block[r][c]);
}

// The initial value of c: the bias, plus its previous value when accumulating.
template <class In, class Out>
float start(const GemmTile& t, const TileData& data, int64_t i, int64_t j) {
  const float bias = t.bias ? static_cast<float>(static_cast<const In*>(data.bias)[j]) : 0.0f;
  return t.accumulate ? static_cast<float>(static_cast<const Out*>(data.c)[i * t.ldc + j]) + bias : bias;
}

template <class In, class Out>
void run_typed(const GemmTile& t, const TileData& data) {
  float* strip_b = static_cast<float*>(data.scratch);
  float* strip_a = strip_b + kDepth * kColumns;
  float* sums = strip_a + kDepth * kRows;  // (M rounded up, kColumns), a column strip of c in fp32
  Out* c = static_cast<Out*>(data.c);
  for (int64_t j = 0; j < t.N; j += kColumns) {
    const int64_t columns = std::min<int64_t>(kColumns, t.N - j);
    std::fill(sums, sums + (t.M + kRows) * kColumns, 0.0f);
    for (int64_t k = 0; k < t.K; k += kDepth) {
      const int64_t depth = std::min(kDepth, t.K - k);
      pack_b<In>(t, data.b, k, depth, j, strip_b);
      for (int64_t i = 0; i < t.M; i += kRows) {
        pack_a<In>(t, data.a, k, depth, i, strip_a);
        multiply(strip_a, strip_b, depth, sums + i * kColumns);
      }
    }
    for (int64_t i = 0; i < t.M; ++i)
      for (int64_t x = 0; x < columns; ++x)
        c[i * t.ldc + j + x] = Out(t.alpha * sums[i * kColumns + x] + start<In, Out>(t, data, i, j + x));
  }
}

}  // namespace

class TileProduct {
 public:
  explicit TileProduct(const GemmTile& tile) : tile_(tile) {}
  int64_t scratch_bytes() const {
    return static_cast<int64_t>(sizeof(float)) * (kDepth * (kColumns + kRows) + (tile_.M + kRows) * kColumns);
  }
  void run(const TileData& data) const {
    if (tile_.in == DType::f32) return run_typed<float, float>(tile_, data);
    tile_.out == DType::f32 ? run_typed<bf16, float>(tile_, data) : run_typed<bf16, bf16>(tile_, data);
  }

 private:
  GemmTile tile_;
};

// Strips of any dtype are unpacked to fp32, so there is nothing to gain from widened operands.
Bf16Instructions bf16_instructions() { return Bf16Instructions::tiles; }

std::shared_ptr<TileProduct> make_tile(const GemmTile& tile) { return std::make_shared<TileProduct>(tile); }

int64_t tile_scratch_bytes(const TileProduct& product) { return product.scratch_bytes(); }

void run_tile(const TileProduct& product, const TileData& data) noexcept { product.run(data); }

void check_tiles() {}

}  // namespace flatshard
