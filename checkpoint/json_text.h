#pragma once
// Parses and prints JSON values. The library's parser and printer take a second or two to compile in each
// file that calls them; here they are compiled once.

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "checkpoint/json.h"

namespace flatshard {

// Parses text to nlohmann::json or to ordered_json, whose objects keep their order. Bad text throws the
// library's exception, which names the place.
template <class Json>
Json parse_json(std::string_view text);

// Like parse_json(), but bad text gives a value for which is_discarded() is true.
template <class Json>
Json parse_json_or_discard(std::string_view text);

// Parses untrusted text after check_json(), whose Error begins with the path.
template <class Json>
Json checked_json(std::string_view text, const std::string& path, size_t most_members = kMostMembers,
                  ZeroBytes in_names = ZeroBytes::refused);

constexpr int kOneLine = -1;
enum class InvalidUtf8 { refused, replaced };

// The text of a value, with line breaks and `indent` spaces for each level, or on one line. Throws the
// library's exception.
std::string json_text(const nlohmann::json& value, int indent = kOneLine,
                      InvalidUtf8 invalid = InvalidUtf8::refused);
std::string json_text(const nlohmann::ordered_json& value, int indent = kOneLine,
                      InvalidUtf8 invalid = InvalidUtf8::refused);

// The text of a value on one line, with escapes for all characters that are not ASCII.
std::string ascii_json_text(const nlohmann::json& value);

}  // namespace flatshard
