#pragma once
// JSON values, and their texts. This is the only header that includes the JSON library. Its classes are
// instantiated once, in json.cpp; without that, each file that includes it would compile for a second longer,
// and each file that parses or prints for another.

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace nlohmann {

extern template class basic_json<>;
extern template class basic_json<ordered_map>;

namespace detail {

// The inputs of parse(): characters in memory, and a string.
using TextInput = decltype(input_adapter(std::declval<const std::string_view&>()));
using StringInput = decltype(input_adapter(std::declval<const std::string&>()));

extern template class lexer<json, TextInput>;
extern template class lexer<json, StringInput>;
extern template class lexer<ordered_json, TextInput>;
extern template class lexer<ordered_json, StringInput>;
extern template class parser<json, TextInput>;
extern template class parser<json, StringInput>;
extern template class parser<ordered_json, TextInput>;
extern template class parser<ordered_json, StringInput>;
extern template class json_sax_dom_parser<json>;
extern template class json_sax_dom_parser<ordered_json>;
extern template class json_sax_dom_callback_parser<json>;
extern template class json_sax_dom_callback_parser<ordered_json>;
extern template class serializer<json>;
extern template class serializer<ordered_json>;

}  // namespace detail
}  // namespace nlohmann

namespace flatshard {

// What the text of a file may contain.
struct JsonLimits {
  size_t depth = 32;         // the deepest level of nesting
  size_t members = 1 << 14;  // the largest number of members in an object
  // Whether names may contain a zero byte, which would cut messages short.
  bool zero_bytes_in_names = false;
};

// Checks JSON that other code interprets: valid UTF-8, no duplicate names, and the limits, so that all
// readers agree on it and none is overloaded. Takes at most O(n log n) time. The Error does not name the
// file.
void check_json(std::string_view text, const JsonLimits& limits = {});

// Parses text to nlohmann::json or to ordered_json, whose objects keep their order. Bad text throws the
// library's exception, which names the place.
template <class Json>
Json parse_json(std::string_view text);

// Like parse_json(), but bad text gives a value for which is_discarded() is true.
template <class Json>
Json parse_json_or_discard(std::string_view text);

// Parses untrusted text after check_json(). The Error begins with the path.
template <class Json>
Json checked_json(std::string_view text, const std::string& path, const JsonLimits& limits = {});

// Hands the parts of a text to `sax`, in order, until it returns false.
void scan_json(std::string_view text, nlohmann::json_sax<nlohmann::json>& sax);

constexpr int kOneLine = -1;
enum class InvalidUtf8 { refused, replaced };

// The text of a value, with line breaks and `indent` spaces for each level, or on one line. Throws the
// library's exception.
std::string json_text(const nlohmann::json& value, int indent = kOneLine,
                      InvalidUtf8 invalid = InvalidUtf8::refused);
std::string json_text(const nlohmann::ordered_json& value, int indent = kOneLine,
                      InvalidUtf8 invalid = InvalidUtf8::refused);

// The text of a value for an error, on one line. A value whose text is long is described: "a list of 5000
// elements".
template <class Json>
std::string short_json_text(const Json& value);

}  // namespace flatshard
