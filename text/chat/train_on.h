#pragma once
// The choice of trained tokens in a conversation.

#include <array>

#include "runtime/named.h"

namespace flatshard {

// The assistant's turns, its last turn, or all tokens.
enum class TrainOn { assistant, last, all };
constexpr auto value_names(TrainOn) { return std::array{"assistant", "last", "all"}; }

}  // namespace flatshard
