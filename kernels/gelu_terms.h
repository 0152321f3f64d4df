#pragma once
// The constants of GELU (gelu.h).
//
// With erf, P(-t) = e^(-t^2/2) R(t) for t >= 0, and P(t) = 1 - P(-t): no digits cancel on either side. R is
// smooth, and with s = 1 / (1 + kErfScale t)
//   R(t) = s (kErfTail[0] + kErfTail[1] s + ... + kErfTail[8] s^8)
// a minimax fit of the relative error, 3.2e-8 where e^(-t^2/2) is not zero.

#include <numbers>

namespace flatshard {

inline constexpr float kTwoSqrtTwoOverPi =
    static_cast<float>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

inline constexpr float kQuickGelu = 1.702f;

inline constexpr float kInvSqrtTwoPi =
    static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);  // 1 / sqrt(2 pi)
inline constexpr float kErfScale = 0.35f;
inline constexpr float kErfTail[9] = {0.13962166f,   0.13985756f,    0.11986309f,
                                      0.105392158f,  -0.0228434722f, 0.158796608f,
                                      -0.255391032f, 0.143818423f,   -0.0291150156f};

}  // namespace flatshard
