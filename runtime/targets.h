#pragma once
// The targets of positions that predict no token. Losses ignore every negative target.

#include <cstdint>

namespace flatshard {

inline constexpr int32_t kIgnoredTarget = -100;
// The target of padding, which routers send to no expert.
inline constexpr int32_t kPaddingTarget = -101;

}  // namespace flatshard
