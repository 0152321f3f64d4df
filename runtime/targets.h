#pragma once
// The targets of positions that predict no token. Losses ignore every negative target.

#include <cstdint>

namespace flatshard {

inline constexpr int32_t kIgnoredTarget = -100;
// Of a position behind the last text of a sequence, or before the first one. Routers send it to no expert.
inline constexpr int32_t kPaddingTarget = -101;

}  // namespace flatshard
