#pragma once
// JSON values from text, and their text. What parses and writes JSON takes a second or two to compile in each
// file that calls it in the library; here it is compiled once.

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "checkpoint/json.h"

namespace flatshard {

// Of nlohmann::json, and of ordered_json, whose objects keep their order. Bad text throws the exception of
// the library, which says where it is bad.
template <class Json>
Json parse_json(std::string_view text);

// As above, but bad text gives a value of which is_discarded() holds.
template <class Json>
Json parse_json_or_discard(std::string_view text);

// Of text from elsewhere, after check_json(), whose Error begins with the path.
template <class Json>
Json checked_json(std::string_view text, const std::string& path, size_t most_members = kMostMembers,
                  ZeroBytes in_names = ZeroBytes::refused);

constexpr int kOneLine = -1;
enum class InvalidUtf8 { refused, replaced };

// With line breaks and so many spaces for each level, or on one line. Throws the exception of the library.
std::string json_text(const nlohmann::json& value, int indent = kOneLine,
                      InvalidUtf8 invalid = InvalidUtf8::refused);
std::string json_text(const nlohmann::ordered_json& value, int indent = kOneLine,
                      InvalidUtf8 invalid = InvalidUtf8::refused);

// On one line, with escapes for all that is not ASCII.
std::string ascii_json_text(const nlohmann::json& value);

}  // namespace flatshard
