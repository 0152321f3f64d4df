#include "runtime/rng.h"

#include <algorithm>

namespace flatshard {
namespace {

// Numbers are generated in blocks aligned to kBlock, by loops of constant length that the compiler
// vectorizes.
constexpr int64_t kBlock = 64;

using BitBlock = uint32_t[kBlock];
using FloatBlock = float[kBlock];

void make_bits(const RandomStream& random, int64_t begin, BitBlock& block) {
  for (int j = 0; j < kBlock / 4; ++j) {
    const RandomWords w = random.words(begin / 4 + j);
    for (int k = 0; k < 4; ++k) block[4 * j + k] = w.word[k];
  }
}

template <class MakeBlock>
void fill(int64_t first, std::span<float> out, MakeBlock make_block) {
  const int64_t end = first + static_cast<int64_t>(out.size());
  for (int64_t begin = first - first % kBlock; begin < end; begin += kBlock) {
    FloatBlock block;
    make_block(begin, block);
    const int64_t from = std::max(begin, first), to = std::min(begin + kBlock, end);
    std::copy(block + (from - begin), block + (to - begin), out.data() + (from - first));
  }
}

}  // namespace

void RandomStream::fill_uniform(int64_t first, std::span<float> out) const {
  fill(first, out, [this](int64_t begin, FloatBlock& block) {
    BitBlock bits;
    make_bits(*this, begin, bits);
    for (int i = 0; i < kBlock; ++i) block[i] = to_uniform(bits[i]);
  });
}

void RandomStream::fill_normal(int64_t first, std::span<float> out) const {
  fill(first, out, [this](int64_t begin, FloatBlock& block) {
    BitBlock bits;
    make_bits(*this, begin, bits);
    for (int i = 0; i < kBlock; i += 2) {
      const NormalPair pair = box_muller(bits[i], bits[i + 1]);
      block[i] = pair.first;
      block[i + 1] = pair.second;
    }
  });
}

}  // namespace flatshard
