#pragma once
// MXFP4: four bits for each value, and an exponent for a block of 32 of them, stored plus 127.

#include <array>
#include <cmath>
#include <cstdint>

namespace flatshard {

// The values of the codes, of which the highest bit is the sign.
inline constexpr std::array<float, 16> kMxfp4Values{0,     0.5f,  1,     1.5f,  2,     3,     4,     6,
                                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

inline float mxfp4_scale(uint8_t exponent) { return std::ldexp(1.0f, exponent - 127); }

}  // namespace flatshard
