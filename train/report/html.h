#pragma once
// Text within HTML.

#include <string>
#include <string_view>

namespace flatshard {

std::string escaped(std::string_view text);

}  // namespace flatshard
