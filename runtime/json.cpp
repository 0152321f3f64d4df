#include "runtime/json.h"

#include <unordered_set>
#include <vector>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/utf8.h"

namespace nlohmann {

template class basic_json<>;
template class basic_json<ordered_map>;

namespace detail {

template class lexer<json, TextInput>;
template class lexer<json, StringInput>;
template class lexer<ordered_json, TextInput>;
template class lexer<ordered_json, StringInput>;
template class parser<json, TextInput>;
template class parser<json, StringInput>;
template class parser<ordered_json, TextInput>;
template class parser<ordered_json, StringInput>;
template class json_sax_dom_parser<json>;
template class json_sax_dom_parser<ordered_json>;
template class json_sax_dom_callback_parser<json>;
template class json_sax_dom_callback_parser<ordered_json>;
template class serializer<json>;
template class serializer<ordered_json>;

}  // namespace detail
}  // namespace nlohmann

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Refuses duplicate names and excessive depth, which a parsed value no longer shows. This is a separate pass
// because the library's parser callback searches all previous members at the end of each, which takes
// quadratic time.
class Strict : public nlohmann::json_sax<json> {
 public:
  explicit Strict(const JsonLimits& limits) : limits_(limits) {}

  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    check(limits_.zero_bytes_in_names || name.find('\0') == name.npos, "invalid JSON: the name \"",
          name.c_str(), "\" contains a zero byte");
    std::unordered_set<std::string>& names = names_.back();
    check(names.insert(name).second, "invalid JSON: \"", name, "\" appears twice");
    check(names.size() <= limits_.members, "invalid JSON: an object has more than ", limits_.members,
          " members");
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    fail(str("invalid JSON: ", error.what()));
  }

 private:
  bool open() {
    check(names_.size() < limits_.depth, "invalid JSON: nested more than ", limits_.depth, " levels deep");
    names_.emplace_back();
    return true;
  }
  bool close() {
    names_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  std::vector<std::unordered_set<std::string>> names_;  // names in each open object
};

json::error_handler_t handler_of(InvalidUtf8 invalid) {
  return invalid == InvalidUtf8::replaced ? json::error_handler_t::replace : json::error_handler_t::strict;
}

}  // namespace

void check_json(std::string_view text, const JsonLimits& limits) {
  const size_t valid = valid_utf8_prefix(text), zero = text.find('\0');
  check(zero >= valid, "invalid JSON: a zero byte at ", zero);  // the parser would stop there
  check(valid == text.size(), "invalid JSON: not UTF-8 at byte ", valid);
  check(!text.starts_with("\xef\xbb\xbf"), "invalid JSON: begins with a byte order mark");
  Strict strict(limits);
  scan_json(text, strict);
}

void scan_json(std::string_view text, nlohmann::json_sax<json>& sax) { json::sax_parse(text, &sax); }

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
Json checked_json(std::string_view text, const std::string& path, const JsonLimits& limits) {
  try {
    check_json(text, limits);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what(), error.where);
  }
  return parse_json<Json>(text);
}
template json checked_json(std::string_view text, const std::string& path, const JsonLimits& limits);
template ordered_json checked_json(std::string_view text, const std::string& path, const JsonLimits& limits);

std::string json_text(const json& value, int indent, InvalidUtf8 invalid) {
  return value.dump(indent, ' ', false, handler_of(invalid));
}

std::string json_text(const ordered_json& value, int indent, InvalidUtf8 invalid) {
  return value.dump(indent, ' ', false, handler_of(invalid));
}

template <class Json>
std::string short_json_text(const Json& value) {
  constexpr size_t kLongest = 120;
  const std::string text = json_text(value);
  if (text.size() <= kLongest) return text;
  if (value.is_array()) return str("a list of ", counted(std::ssize(value), "element"));
  if (value.is_object()) return str("an object of ", counted(std::ssize(value), "member"));
  return str("a string of ", counted(std::ssize(value.template get_ref<const std::string&>()), "byte"));
}
template std::string short_json_text(const json& value);
template std::string short_json_text(const ordered_json& value);

}  // namespace flatshard
