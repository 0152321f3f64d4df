#include "checkpoint/json_text.h"

#include <nlohmann/json.hpp>

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

json::error_handler_t handler_of(InvalidUtf8 invalid) {
  return invalid == InvalidUtf8::replaced ? json::error_handler_t::replace : json::error_handler_t::strict;
}

}  // namespace

template <class Json>
Json parse_json(std::string_view text) {
  return Json::parse(text);
}
template json parse_json(std::string_view text);
template ordered_json parse_json(std::string_view text);

template <class Json>
Json parse_json_or_discard(std::string_view text) {
  return Json::parse(text, nullptr, false);
}
template json parse_json_or_discard(std::string_view text);
template ordered_json parse_json_or_discard(std::string_view text);

template <class Json>
Json checked_json(std::string_view text, const std::string& path, size_t most_members, ZeroBytes in_names) {
  check_json(text, path, most_members, in_names);
  return parse_json<Json>(text);
}
template json checked_json(std::string_view text, const std::string& path, size_t most_members, ZeroBytes);
template ordered_json checked_json(std::string_view text, const std::string& path, size_t most_members,
                                   ZeroBytes);

std::string json_text(const json& value, int indent, InvalidUtf8 invalid) {
  return value.dump(indent, ' ', false, handler_of(invalid));
}

std::string json_text(const ordered_json& value, int indent, InvalidUtf8 invalid) {
  return value.dump(indent, ' ', false, handler_of(invalid));
}

std::string ascii_json_text(const json& value) {
  return value.dump(kOneLine, ' ', true, json::error_handler_t::replace);
}

}  // namespace flatshard
