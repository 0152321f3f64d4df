#pragma once
// Which tokens of a conversation are trained.

#include <array>

#include "runtime/named.h"

namespace flatshard {

// The assistant's turns, the last of them, or all tokens.
enum class TrainOn { assistant, last, all };
constexpr auto value_names(TrainOn) { return std::array{"assistant", "last", "all"}; }

}  // namespace flatshard
