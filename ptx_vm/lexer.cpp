#include "ptx_vm/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

// A file of PTX has millions of characters.
constexpr std::array<bool, 256> kWords = [] {
  std::array<bool, 256> is{};
  for (const char* ranges : {"az", "AZ", "09", "__", "$$", "..", "%%"})
    for (int c = ranges[0]; c <= ranges[1]; ++c) is[static_cast<size_t>(c)] = true;
  return is;
}();

bool is_word(char c) { return kWords[static_cast<unsigned char>(c)]; }

}  // namespace

std::vector<Token> tokens_of(std::string_view ptx) {
  std::vector<Token> tokens;
  int line = 1;
  size_t at = 0;
  const auto text_until = [&](auto&& stop) {
    const size_t begin = at;
    while (at < ptx.size() && !stop(ptx[at])) ++at;
    return ptx.substr(begin, at - begin);
  };
  while (at < ptx.size()) {
    const char c = ptx[at];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++at;
    } else if (ptx.substr(at, 2) == "//") {
      text_until([](char x) { return x == '\n'; });
    } else if (ptx.substr(at, 2) == "/*") {
      const size_t close = ptx.find("*/", at + 2);
      check(close != ptx.npos, "PTX line ", line, ": the comment does not end");
      line += static_cast<int>(std::count(ptx.begin() + at, ptx.begin() + close, '\n'));
      at = close + 2;
    } else if (c == '"') {
      ++at;
      const std::string_view text = text_until([](char x) { return x == '"' || x == '\n'; });
      check(at < ptx.size() && ptx[at] == '"', "PTX line ", line, ": the string does not end");
      ++at;
      tokens.push_back({Token::Kind::string, text, line});
    } else if (is_word(c)) {
      tokens.push_back({Token::Kind::word, text_until([](char x) { return !is_word(x); }), line});
    } else {
      tokens.push_back({Token::Kind::mark, ptx.substr(at++, 1), line});
    }
  }
  tokens.push_back({Token::Kind::end, {}, line});
  return tokens;
}

}  // namespace flatshard::ptx_vm
