#pragma once
// A tile of a bf16 product, computed in f32, for processors whose bf16 instructions are slow
// (bf16_products.h), or that have none, where a library's bf16 product is several times slower than its f32
// product. Products of bf16 values are exact in f32 either way. Operands are widened in scratch a block of K
// at a time; c is rounded once, at the end.

#include <array>

#include "kernels/gemm_tile.h"

namespace flatshard {

class WidenedTile {
 public:
  explicit WidenedTile(const GemmTile& tile);

  int64_t scratch_bytes() const;
  // Any number of threads may run one tile at a time, each on its own data.
  void run(const TileData& data) const;

 private:
  GemmTile block(int64_t depth, bool first) const;  // the f32 tile of a block of K

  GemmTile tile_;
  // The products of the first block, of the blocks between, and of the last one, which may be shorter.
  std::array<std::shared_ptr<TileProduct>, 3> products_;
  int64_t a_bytes_ = 0, b_bytes_ = 0, c_bytes_ = 0, product_bytes_ = 0;
};

}  // namespace flatshard
