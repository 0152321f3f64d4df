#pragma once
// Tiles: the rows of a block, so many at a time (LayerCall::tile). Steps that relate no tokens to each other
// run tile by tile, in order, and their gradients of weights are added in place, tile after tile. What a tile
// saves lasts until its end: a backward pass computes the values of a tile again before their gradients. Sums
// over rows have the order of tiles, so a tile's size changes bits.

#include <algorithm>

#include "model/layer_call.h"
#include "model/rows.h"

namespace flatshard {

// Rows [begin, end) of a micro-batch, as one step of a block takes them.
struct Tile {
  int64_t begin, end;

  Tensor of(const Tensor& rows) const { return rows.empty() ? rows : rows.slice(begin, end); }
  Rows of(const Rows& rows) const { return rows.slice(begin, end); }
};

inline bool has_tiles(const LayerCall& c) { return c.tile > 0; }

// Calls body(call, tile) for each tile of N rows; without tiles once, for all rows.
template <class Body>
void for_each_tile(LayerCall& c, int64_t N, Body&& body) {
  if (!has_tiles(c)) return body(c, Tile{0, N});
  for (int64_t begin = 0; begin < N; begin += c.tile) {
    const ArenaScope saved(c.saved), scratch(c.scratch);
    LayerCall of_tile = c;
    of_tile.first_row = begin;
    of_tile.recomputes_ops = false;  // all of it is computed again in any case
    body(of_tile, Tile{begin, std::min(begin + c.tile, N)});
  }
}

}  // namespace flatshard
