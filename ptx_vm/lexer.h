#pragma once
// Splits PTX text into tokens. Words include dots and dollar signs ("ld.global.f32", "%tid.x", "$L__BB0_1").
// Tokens are views into the text, which must outlive them.

#include <string_view>
#include <vector>

namespace flatshard::ptx_vm {

struct Token {
  enum class Kind { word, string, mark, end };
  Kind kind;
  std::string_view text;  // a string is without its quotes
  int line;               // line of the PTX text, from 1
};

std::vector<Token> tokens_of(std::string_view ptx);

}  // namespace flatshard::ptx_vm
