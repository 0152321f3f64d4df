#pragma once
// Values as text: Python's str() and repr(), and the JSON of the filter tojson. Strings in the text keep
// their sources.

#include <optional>

#include "text/jinja/jinja_value.h"

namespace flatshard {

// Throws an Error for values without a defined text, such as functions and generators.
SourcedText jinja_str(const JinjaValue& value);
SourcedText jinja_repr(const JinjaValue& value);

// The format of Python's json.dumps.
struct JsonStyle {
  std::optional<SourcedText> indent;  // indent of one level
  std::optional<SourcedText> item_separator, key_separator;
  bool sort_keys = false;
  bool ascii = false;  // escape all other characters
};
SourcedText jinja_json(const JinjaValue& value, const JsonStyle& style);

// Prints like Python: the shortest digits that give the same number, 1.0, 1e+16, inf.
std::string python_float(double value);

}  // namespace flatshard
