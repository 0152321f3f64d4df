#include "runtime/rng.h"

#include <algorithm>

namespace flatshard {
namespace {

// Numbers are generated in tiles aligned to kTile, by loops of constant length that the compiler vectorizes.
constexpr int64_t kTile = 64;

using BitTile = uint32_t[kTile];
using FloatTile = float[kTile];

void make_bits(const RandomStream& random, int64_t begin, BitTile& tile) {
  for (int j = 0; j < kTile / 4; ++j) {
    const RandomWords w = random.words(begin / 4 + j);
    for (int k = 0; k < 4; ++k) tile[4 * j + k] = w.word[k];
  }
}

template <class MakeTile>
void fill(int64_t first, std::span<float> out, MakeTile make_tile) {
  const int64_t end = first + static_cast<int64_t>(out.size());
  for (int64_t begin = first - first % kTile; begin < end; begin += kTile) {
    FloatTile tile;
    make_tile(begin, tile);
    const int64_t from = std::max(begin, first), to = std::min(begin + kTile, end);
    std::copy(tile + (from - begin), tile + (to - begin), out.data() + (from - first));
  }
}

}  // namespace

void RandomStream::fill_uniform(int64_t first, std::span<float> out) const {
  fill(first, out, [this](int64_t begin, FloatTile& tile) {
    BitTile bits;
    make_bits(*this, begin, bits);
    for (int i = 0; i < kTile; ++i) tile[i] = to_uniform(bits[i]);
  });
}

void RandomStream::fill_normal(int64_t first, std::span<float> out) const {
  fill(first, out, [this](int64_t begin, FloatTile& tile) {
    BitTile bits;
    make_bits(*this, begin, bits);
    for (int i = 0; i < kTile; i += 2) {
      const NormalPair pair = box_muller(bits[i], bits[i + 1]);
      tile[i] = pair.first;
      tile[i + 1] = pair.second;
    }
  });
}

}  // namespace flatshard
