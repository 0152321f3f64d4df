#pragma once
// Shared by the forward and backward pass of attention on the CPU: blocks of rows, the mask, and the softmax
// of one tile of scores. The rows of a tile are keys and its columns queries, so that the maximum, sum and
// mask of each query occupy one lane of a vector.

#include <algorithm>
#include <limits>

#include "kernels/attention.h"
#include "kernels/simd_math.h"
#include "kernels/tile_product.h"
#include "runtime/parallel.h"

namespace flatshard::cpu {

using simd::Floats;
using simd::Ints;
using simd::kWidth;
using simd::load;
using simd::splat;
using simd::store;
using tile::round_up;
using tile::Word;
using tile::words;

inline constexpr int64_t kQueryBlock = 64, kKeyBlock = 128;
inline constexpr int64_t kPackBlock = 256;     // rows in one packing task
inline constexpr int64_t kMaskedQueries = 32;  // queries of a masked tile: fewer masked pairs are computed
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kLog2e = 1.44269504f, kLn2 = 0.693147181f;

// Rows of one document.
struct Rows {
  int64_t document, begin, end;  // relative to the document's first row
  int64_t size() const { return end - begin; }
};

inline const Tensor& key_boundaries(const AttentionMask& mask) {
  return mask.cu_seqlens_kv.empty() ? mask.cu_seqlens : mask.cu_seqlens_kv;
}
inline int64_t document_count(const AttentionMask& mask) { return mask.cu_seqlens.size() - 1; }

struct Documents {
  explicit Documents(const Tensor& cu_seqlens)
      : boundaries(cu_seqlens.as<int32_t>()), count(cu_seqlens.size() - 1) {}

  const int32_t* boundaries;
  int64_t count;

  int64_t first_row(int64_t document) const { return boundaries[document]; }
  int64_t length(int64_t document) const { return boundaries[document + 1] - boundaries[document]; }
  int64_t rows() const { return boundaries[count]; }

  // Documents are cut into blocks of `size` rows, numbered by slots in [0, slots(size)). Some slots are
  // empty. The slots of document d start at boundaries[d] / size + d.
  int64_t slots(int64_t size) const { return rows() / size + count; }
  Rows block(int64_t slot, int64_t size) const {
    int64_t low = 0, high = count;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (first_row(middle) / size + middle <= slot ? low : high) = middle;
    }
    const int64_t begin = std::min(length(low), (slot - first_row(low) / size - low) * size);
    return {low, begin, std::min(length(low), begin + size)};
  }

  // The packed rows of a document start at an even index, so that no pair of rows spans two documents.
  int64_t packed_row(int64_t document) const { return (first_row(document) + document) / 2 * 2; }
};

// An operand packed per head: rows of D values, with the k of tile_product.h along the rows or down them.
template <class T>
struct Packed {
  Word* data;
  int64_t rows, D;  // `rows` is packed_rows() of the tensor

  static int64_t size_along(int64_t rows, int64_t D) { return rows * words<T>(D); }
  static int64_t size_down(int64_t rows, int64_t D) { return words<T>(rows) * round_up(D, kWidth); }

  Word* along(int64_t head, int64_t row) const {
    return data + head * size_along(rows, D) + size_along(row, D);
  }
  Word* down(int64_t head, int64_t row) const { return data + head * size_down(rows, D) + size_down(row, D); }
};

inline int64_t packed_rows(int64_t rows, int64_t documents) { return rows + documents; }

// Scratch for an operand packed along or down.
template <class T>
Tensor packed_along(Arena& scratch, const Heads& x, const AttentionMask& mask) {
  return scratch.alloc(
      DType::i32,
      {x.count, Packed<T>::size_along(packed_rows(x.rows(), document_count(mask)), x.head_size())});
}
template <class T>
Tensor packed_down(Arena& scratch, const Heads& x, const AttentionMask& mask) {
  return scratch.alloc(DType::i32, {x.count, Packed<T>::size_down(packed_rows(x.rows(), document_count(mask)),
                                                                  x.head_size())});
}

// Calls pack(in, head, packed row, rows) for all blocks of rows in all heads of x, in parallel.
template <class T, class Pack>
void for_each_block(const Heads& x, const Documents& documents, Pack&& pack) {
  const int64_t slots = documents.slots(kPackBlock);
  parallel_for(slots * x.count, [&](int64_t task) {
    const Rows rows = documents.block(task % slots, kPackBlock);
    const int64_t head = task / slots;
    if (rows.size() > 0)
      pack(x.at<T>(documents.first_row(rows.document) + rows.begin, head), head,
           documents.packed_row(rows.document) + rows.begin, rows.size());
  });
}

// The mask of one document.
struct Visible {
  int64_t keys, shift;  // query i has the position step * i + shift
  bool causal;
  int64_t window;
  int64_t step = 1;  // 0: all queries are heads of one token

  int64_t position(int64_t query) const { return step * query + shift; }

  // A block of queries attends to keys in [begin(), end()), where begin() is the start of a key block.
  int64_t begin(const Rows& queries) const {
    const int64_t first = window > 0 ? std::max<int64_t>(0, position(queries.begin) - window + 1) : 0;
    return first / kKeyBlock * kKeyBlock;
  }
  int64_t end(const Rows& queries) const {
    return causal ? std::clamp<int64_t>(position(queries.end - 1) + 1, 0, keys) : keys;
  }
  // Returns whether every query of the block attends to every key in [first, last).
  bool unmasked(const Rows& queries, int64_t first, int64_t last) const {
    if (!causal) return true;
    return last - 1 <= position(queries.begin) && (window == 0 || first > position(queries.end - 1) - window);
  }

  // Calls tile(part, key, keys, masked) for the tiles that are not fully masked, in the order of their keys:
  // queries `part` against keys [key, key + keys), where `masked` tells whether some pairs are masked.
  template <class Tile>
  void for_each_tile(const Rows& queries, Tile&& tile) const {
    const auto visit = [&](const Rows& part, int64_t key) {
      const int64_t last = std::min(key + kKeyBlock, end(part));
      if (key >= begin(part) && key < last) tile(part, key, last - key, !unmasked(part, key, last));
    };
    for (int64_t key = begin(queries); key < end(queries); key += kKeyBlock) {
      if (unmasked(queries, key, std::min(key + kKeyBlock, keys))) {
        visit(queries, key);
        continue;
      }
      for (int64_t i = queries.begin; i < queries.end; i += kMaskedQueries)
        visit({queries.document, i, std::min(queries.end, i + kMaskedQueries)}, key);
    }
  }
};

inline Visible visible(const AttentionMask& mask, int64_t queries, int64_t keys) {
  return {.keys = keys, .shift = keys - queries, .causal = mask.causal, .window = mask.window};
}

// Replaces products of queries and keys by scores bounded to (-softcap, softcap).
inline void cap_scores(float* scores, int64_t queries, int64_t keys, float scale, float softcap) {
  for (int64_t i = 0; i < queries; i += kWidth)
    for (int64_t j = 0; j < keys; ++j) {
      float* at = scores + j * kQueryBlock + i;
      store(at, softcap * simd::tanh(load(at) * (scale / softcap)));
    }
}

// Sets masked scores to -inf.
inline void mask_scores(float* scores, const Visible& mask, const Rows& queries, int64_t first_key,
                        int64_t keys) {
  constexpr Ints kIndex{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  // The limit exceeds every distance of two positions, and keeps differences within 32 bits.
  const int64_t window =
      mask.window > 0 ? std::min<int64_t>(mask.window, int64_t{1} << 30) : int64_t{1} << 30;
  for (int64_t i = 0; i < queries.size(); i += kWidth) {
    const Ints ahead = kIndex * static_cast<int32_t>(mask.step) +
                       static_cast<int32_t>(mask.position(queries.begin + i) - first_key);
    for (int64_t j = 0; j < keys; ++j) {
      float* at = scores + j * kQueryBlock + i;
      const Ints distance = ahead - static_cast<int32_t>(j);
      const Floats left = distance < static_cast<int32_t>(window) ? simd::load(at) : splat(-kInfinity);
      simd::store(at, distance >= 0 ? left : splat(-kInfinity));
    }
  }
}

// 2^x for x up to 1, within 2 units in the last place; 0 below -126, NaN stays NaN.
[[gnu::always_inline]] inline Floats exp2(Floats x) {
  const Floats clamped = simd::max(splat(-126.0f), x);
  // x = n + r, |r| <= 1/2; adding 1.5 * 2^23 leaves n in the low bits.
  const Floats magic = splat(12582912.0f), shifted = clamped + magic;
  const Floats r = clamped - (shifted - magic);
  Floats p = splat(1.53533e-4f);
  p = simd::fma(p, r, splat(1.33989e-3f));
  p = simd::fma(p, r, splat(9.61844e-3f));
  p = simd::fma(p, r, splat(5.55033e-2f));
  p = simd::fma(p, r, splat(2.40226487e-1f));
  p = simd::fma(p, r, splat(6.93147182e-1f));
  p = simd::fma(p, r, splat(1.0f));
  const Floats scaled = (Floats)((Ints)p + ((Ints)shifted << 23));
  return x < -126.0f ? splat(0.0f) : scaled;
}

}  // namespace flatshard::cpu
