#pragma once
// The constants of GELU (gelu.h).

#include <numbers>

namespace flatshard {

inline constexpr float kTwoSqrtTwoOverPi =
    static_cast<float>(2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi);  // 2 sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715f;

}  // namespace flatshard
