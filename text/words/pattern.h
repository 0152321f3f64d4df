#pragma once
// A pattern that a tokenizer searches for in text: a string, a regular expression, or any character of some
// sets.

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "text/words/known_pattern.h"
#include "text/words/regex.h"

namespace flatshard {

class Pattern {
 public:
  static Pattern literal(std::string text) { return Pattern(std::move(text)); }
  static Pattern expression(const std::string& expression);
  static Pattern one_of(unsigned char_sets) { return Pattern(Sets{char_sets}); }  // bits of CharSet

  // Calls take(begin, end, is_match) for the matches in the text, which may be empty, and for the text
  // between them, from left to right.
  template <class Take>
  void cut(std::string_view text, Take&& take) const;

 private:
  struct Sets {
    unsigned bits;
  };
  using Kind = std::variant<std::string, KnownPattern, Regex, Sets>;
  explicit Pattern(Kind kind) : kind_(std::move(kind)) {}

  // Finds the first match at `from` or later.
  bool next(std::string_view text, size_t from, std::optional<RegexSearch>& search, TextRange* match) const;

  Kind kind_;
};

template <class Take>
void Pattern::cut(std::string_view text, Take&& take) const {
  if (const KnownPattern* const known = std::get_if<KnownPattern>(&kind_)) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = known->end_of_match(text, at);
      take(at, end, true);
      at = end;
    }
    return;
  }
  std::optional<RegexSearch> search;
  size_t at = 0, from = 0;
  TextRange match;
  while (from <= text.size() && next(text, from, search, &match)) {
    if (match.begin > at) take(at, match.begin, false);
    take(match.begin, match.end, true);
    at = from = match.end;
    if (match.begin == match.end) {  // continue after the next character
      ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0u) == 0x80u) ++from;
    }
  }
  if (at < text.size()) take(at, text.size(), false);
}

}  // namespace flatshard
