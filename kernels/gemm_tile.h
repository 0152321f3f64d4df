#pragma once
// A matrix product on one thread, the unit of work of gemm(). A build has one of two back ends:
// gemm_onednn.cpp, or gemm_plain.cpp without oneDNN. The same product gives the same bits on any thread.

#include <compare>
#include <cstdint>
#include <memory>

#include "kernels/bf16_products.h"
#include "runtime/dtype.h"

namespace flatshard {

// The shape of a tile, (M, N) of c, with the leading dimensions of the full matrices. Dtypes are f32 or bf16.
struct GemmTile {
  int64_t M, N, K;
  int64_t lda, ldb, ldc;
  DType in, out;
  bool transpose_a, transpose_b, bias, accumulate;
  float alpha = 1;

  auto operator<=>(const GemmTile&) const = default;
};

// The instructions that the back end uses for bf16 tiles.
Bf16Instructions bf16_instructions();

// Rows that start a multiple of 2 KiB apart share a few sets of the L1 cache, so an AVX2 kernel that walks
// down them takes up to twice as long. uncrowded() is the row length of a copy without this problem.
constexpr bool is_crowded(int64_t row) { return row % 512 == 0; }  // row length in floats
constexpr int64_t uncrowded(int64_t row) { return is_crowded(row) ? row + 16 : row; }

// The data that a back end prepares for a shape. gemm() keeps it for the life of the program.
class TileProduct;
std::shared_ptr<TileProduct> make_tile(const GemmTile& tile);

int64_t tile_scratch_bytes(const TileProduct& product);

struct TileData {
  void* c;
  const void *a, *b, *bias;  // bias may be null
  void* scratch;             // tile_scratch_bytes, aligned to 64
};

// Several threads may run the same product at the same time on different data.
void run_tile(const TileProduct& product, const TileData& data) noexcept;
// Throws an Error if a tile has failed since the last call because a library was refused memory.
void check_tiles();

}  // namespace flatshard
