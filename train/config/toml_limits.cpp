#include "train/config/toml_limits.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "runtime/check.h"

namespace flatshard {
namespace {

// Scans TOML with just enough grammar to recognize strings and comments. On invalid TOML it may go wrong, but
// only after the point at which the parser stops.
class Walker {
 public:
  Walker(std::string_view text, const std::string& name) : text_(text), name_(name) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (has(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  void walk() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#')
        skip_until_newline();
      else if (c == '"' || c == '\'')
        skip_string(c);
      else
        count(c), ++at_;
    }
  }

 private:
  bool has(std::string_view part) const { return text_.substr(at_, part.size()) == part; }

  void skip_until_newline() {
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  }

  // A string runs to its closing quotes; single-quoted strings have no escapes.
  void skip_string(char quote) {
    const std::string three(3, quote);
    const bool lines = has(three);
    const std::string_view end = std::string_view(three).substr(lines ? 0 : 2);
    at_ += end.size();
    while (at_ < text_.size() && !has(end)) {
      if (text_[at_] == '\n' && !lines) {  // the parser stops here
        at_ = text_.size();
        return;
      }
      if (text_[at_] == '\\' && quote == '"') ++at_;
      if (at_ < text_.size() && text_[at_] == '\n') ++line_;
      ++at_;
    }
    at_ += end.size();
    for (int i = 0; lines && i < 2 && at_ < text_.size() && text_[at_] == quote; ++i) ++at_;  // """a"""""
  }

  void count(char c) {
    check(static_cast<unsigned char>(c) < 0x80, name_, ':', line_,
          ": a non-ASCII character outside of quotes: quote the key or value");
    if (c == '\n') ++line_;
    if (c == '[' || c == '{') ++open_;
    if ((c == ']' || c == '}') && open_ > 0) --open_;
    if (c == '.')
      ++dots_;
    else if (std::string_view("\n=,[{").find(c) != std::string_view::npos)
      dots_ = 0;
    const size_t deepest = std::max(open_, dots_);
    check(deepest <= kMostNesting, name_, ':', line_, ": nested more than ", kMostNesting, " levels deep");
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0;
  int64_t line_ = 1;
  size_t open_ = 0, dots_ = 0;  // open brackets; dots of the current key
};

}  // namespace

void check_toml_limits(const std::string& text, const std::string& name) { Walker(text, name).walk(); }

}  // namespace flatshard
