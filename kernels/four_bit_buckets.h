#pragma once
// The bounds between codes, shared by the CPU and the CUDA kernels of four_bit.h. Bucket i holds the scaled
// values y above the bound above[i - 1] and at most above[i]; its code is code[i]. The bounds of NF4 are the
// midpoints of its table, so a tie takes the lower code. The bounds of FP4 apply to magnitudes: below zero a
// bound is the float just below -t, so that -t itself belongs to the smaller magnitude on either side.

#include <array>
#include <bit>
#include <cstdint>

#include "kernels/four_bit.h"

namespace flatshard {

struct FourBitBuckets {
  std::array<float, 15> above;
  std::array<uint8_t, 16> code;
};

inline constexpr FourBitTable kNf4Table{
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

// The magnitudes 0, 1/16, 8, 12, 4, 6, 2 and 3, divided by 12, and their negatives.
inline constexpr FourBitTable kFp4Table{
    0.0f,  0.0625f / 12,  8.0f / 12,  1.0f,  4.0f / 12,  0.5f,  2.0f / 12,  0.25f,
    -0.0f, -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -0.5f, -2.0f / 12, -0.25f,
};

constexpr FourBitBuckets nf4_buckets() {
  FourBitBuckets b{};
  for (uint8_t i = 0; i < 16; ++i) b.code[i] = i;
  for (size_t i = 0; i < 15; ++i) b.above[i] = (kNf4Table[i] + kNf4Table[i + 1]) * 0.5f;
  return b;
}

constexpr FourBitBuckets fp4_buckets() {
  constexpr std::array<float, 7> kBounds{0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                         0.4166667f,  0.583333f,  0.8333333f};
  constexpr std::array<uint8_t, 8> kByMagnitude{0, 1, 6, 7, 4, 5, 2, 3};
  constexpr uint8_t kSign = 8;
  const auto just_below_minus = [](float t) { return std::bit_cast<float>(std::bit_cast<uint32_t>(-t) + 1); };
  FourBitBuckets b{};
  for (size_t i = 0; i < 7; ++i) {
    b.above[8 + i] = kBounds[i];
    b.above[6 - i] = just_below_minus(kBounds[i]);
  }
  b.above[7] = just_below_minus(0.0f);
  for (size_t i = 0; i < 8; ++i) {
    b.code[8 + i] = kByMagnitude[i];
    b.code[7 - i] = kByMagnitude[i] | kSign;
  }
  return b;
}

inline constexpr FourBitBuckets kNf4Buckets = nf4_buckets(), kFp4Buckets = fp4_buckets();

constexpr const FourBitBuckets& four_bit_buckets(FourBitKind kind) {
  return kind == FourBitKind::nf4 ? kNf4Buckets : kFp4Buckets;
}

// The factors of a block with this absmax: y = x lift inverse. The reciprocal of a tiny absmax overflows, so
// such a block is first lifted by a power of two, which is exact: y has the bits of x (1 / absmax).
struct BlockScale {
  constexpr explicit BlockScale(float absmax)
      : lift(absmax > 0 && absmax < 0x1p-64f ? 0x1p64f : 1.0f),
        inverse(absmax > 0 ? 1.0f / (absmax * lift) : 0.0f) {}
  float lift, inverse;
};

// The number of lanes of the sum of scales (kernels/four_bit.cpp).
inline constexpr int64_t kMeanLanes = 1024;

}  // namespace flatshard
