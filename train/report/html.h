#pragma once
// Text and times within HTML.

#include <string>
#include <string_view>

namespace flatshard {

std::string escaped(std::string_view text);

// Seconds since 1970 as "2026-11-23 09:41:12".
std::string utc(double seconds);

}  // namespace flatshard
