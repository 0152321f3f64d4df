#pragma once
// The tokens of a Jinja template. The lexer applies all white space rules. `trim_blocks` and `lstrip_blocks`
// are on, as in Hugging Face transformers, so a block tag removes the spaces before it on its line and the
// line break after it; `-` removes all white space, and `+` none. A line break at the end of the template is
// dropped.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

struct JinjaToken {
  enum class Kind {
    data,
    block_begin,
    block_end,
    output_begin,
    output_end,
    name,
    text,
    integer,
    number,
    op,
    end
  };

  Kind kind;
  int line;
  std::string text;  // text of data or a string, without escapes; a name; an operator
  int64_t integer = 0;
  double number = 0;

  bool is(Kind of_kind, std::string_view of_text) const { return kind == of_kind && text == of_text; }
  bool is_op(std::string_view op) const { return is(Kind::op, op); }
  bool is_name(std::string_view name) const { return is(Kind::name, name); }
};

// Returns the tokens; the last one is `end`. An Error begins with name:line.
std::vector<JinjaToken> jinja_tokens(std::string_view source, const std::string& name);

}  // namespace flatshard
