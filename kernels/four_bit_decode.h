#pragma once
// Decodes a FourBitMatrix on the CPU. A block has at most sixteen different values: they are scaled and
// rounded once, as a table, and each element is then one lookup.

#include <algorithm>
#include <bit>

#include "kernels/four_bit.h"
#include "kernels/parallel_write.h"
#include "kernels/simd_math.h"

namespace flatshard {

// Elements are rounded to Rounded and stored as T, which is Rounded or float.
template <class T, class Rounded = T>
class FourBitDecoder {
 public:
  explicit FourBitDecoder(const FourBitMatrix& w)
      : codes_(w.codes.as<uint8_t>()),
        table_(simd::load(w.table.as<float>())),
        block_bits_(std::countr_zero(static_cast<uint64_t>(w.block))) {
    if (w.is_nested()) {
      scale_codes_ = w.absmax.as<uint8_t>();
      absmax_ = w.nested_absmax.as<float>();
      nested_table_ = w.nested_table.as<float>();
      offset_ = *w.nested_offset.as<float>();
    } else {
      absmax_ = w.absmax.as<float>();
    }
  }

  // y = elements [first, first + count).
  template <class Output = CachedOutput>
  void decode(T* y, int64_t first, int64_t count, Output out = {}) const {
    const FourBitDecoder w = *this;  // a copy that stores to y cannot change, so it stays in registers
    for (const int64_t end = first + count; first < end;) {
      const int64_t block = first >> w.block_bits_;
      const int64_t n = std::min(end, (block + 1) << w.block_bits_) - first;
      w.decode_block(y, w.values_of(block), first, n, out);
      y += n, first += n;
    }
  }

  // Prefetches the codes of elements [first, first + count), which may be past the end of the matrix.
  void fetch(int64_t first, int64_t count) const {
    constexpr int64_t kLine = 64;
    for (int64_t i = first / 2; i < code_bytes(first + count); i += kLine) simd::fetch(codes_ + i);
  }

 private:
  static constexpr bool kHalves = sizeof(T) == sizeof(uint16_t);
  using Table = std::conditional_t<kHalves, simd::Halves, simd::Floats>;

  float scale_of(int64_t block) const {
    if (!scale_codes_) return absmax_[block];
    return nested_table_[scale_codes_[block]] * absmax_[block / kNestedBlock] + offset_;
  }

  [[gnu::always_inline]] Table values_of(int64_t block) const {
    const simd::Floats values = table_ * simd::splat(scale_of(block));
    if constexpr (std::is_same_v<T, bf16>) return simd::narrow_bf16(values);
    if constexpr (std::is_same_v<T, f16>) return simd::narrow_f16(values);
    if constexpr (!kHalves) return simd::round_to<Rounded>(values);
  }

  template <class Lanes>
  [[gnu::always_inline]] static void store(T* y, Table v, Lanes lanes) {
    if constexpr (kHalves)
      simd::store_halves(y, v, lanes);
    else
      simd::store(y, v, lanes);
  }

  // Decodes elements [first, first + count), which are all in the block with these values.
  template <class Output>
  [[gnu::always_inline]] void decode_block(T* y, Table values, int64_t first, int64_t count,
                                           Output out) const {
    if (first % 2 != 0) {  // the low nibble of a byte
      const simd::Bytes code = simd::Bytes{} + static_cast<uint8_t>(codes_[first / 2] & 15);
      store(y, simd::lookup(values, code), 1);
      ++y, ++first, --count;
    }
    const uint8_t* codes = codes_ + first / 2;
    if constexpr (kHalves)
      for (; count >= 2 * simd::kWidth; count -= 2 * simd::kWidth) {
        out.store_bits(y, simd::lookup_nibbles(values, codes));
        y += 2 * simd::kWidth;
        codes += simd::kWidth;
      }
    simd::for_each_vector(count, [&](int64_t i, auto lanes) {
      const Table v = simd::lookup(values, simd::load_nibbles(codes + i / 2, lanes));
      if constexpr (std::is_same_v<decltype(lanes), simd::Full>)
        out.store_bits(y + i, v);
      else
        store(y + i, v, lanes);
    });
  }

  const uint8_t* codes_;
  simd::Floats table_;
  int block_bits_;       // block size = 2^block_bits_
  const float* absmax_;  // scales of the blocks, or of the nested blocks
  const uint8_t* scale_codes_ = nullptr;
  const float* nested_table_ = nullptr;
  float offset_ = 0;
};

}  // namespace flatshard
