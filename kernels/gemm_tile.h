#pragma once
// One matrix product on one thread: the piece that gemm() cuts its work into. Two back ends, one is built:
// gemm_onednn.cpp, or gemm_plain.cpp where there is no oneDNN. The same product gives the same bits on any
// thread.

#include <compare>
#include <cstdint>
#include <memory>

#include "runtime/dtype.h"

namespace flatshard {

// The shape of a tile: (M, N) of c, with row lengths (leading dimensions) of the matrices it lies in. f32 or
// bf16.
struct GemmTile {
  int64_t M, N, K;
  int64_t lda, ldb, ldc;
  DType in, out;
  bool transpose_a, transpose_b, bias, accumulate;

  auto operator<=>(const GemmTile&) const = default;
};

// Whether bf16 tiles are worth running: where the processor has no bf16 instructions, a library's are slow.
bool has_fast_bf16_tiles();

// What a back end prepares for a shape. gemm() keeps it for the life of the program.
class TileProduct;
std::shared_ptr<TileProduct> make_tile(const GemmTile& tile);

int64_t tile_scratch_bytes(const TileProduct& product);

struct TileData {
  void* c;
  const void *a, *b, *bias;  // bias null where the tile has none
  void* scratch;             // tile_scratch_bytes, at a multiple of 64
};

// Any number of threads may run one product at a time, each on its own data.
void run_tile(const TileProduct& product, const TileData& data);

}  // namespace flatshard
