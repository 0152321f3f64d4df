#pragma once
// Regular expressions over UTF-8 text, as tokenizer files write them (Oniguruma's syntax): \s is Unicode
// White_Space, and \w letters, marks, digits and connectors. regex_pcre2.cpp compiles them with PCRE2's
// just-in-time compiler, after regex_syntax.h rewrote them; a build without PCRE2 has regex_missing.cpp,
// where the constructor is an Error that names the package.

#include <memory>
#include <string>
#include <string_view>

#include "text/words/aligned_text.h"

namespace flatshard {

class Regex {
 public:
  // An Error gives the position of a mistake in the pattern.
  explicit Regex(const std::string& pattern);

 private:
  friend class RegexSearch;
  std::shared_ptr<const void> compiled_;
};

// Searches one text, which must be valid UTF-8 and outlive it. Several may use one Regex at the same time.
class RegexSearch {
 public:
  RegexSearch(const Regex& regex, std::string_view text);
  // The first match that begins at `from` or later. An Error that names the pattern if all searches together
  // take more work than a multiple of the text's size: patterns are untrusted.
  bool next(size_t from, TextRange* match);

 private:
  const Regex& regex_;
  std::string_view text_;
  struct State;  // of regex_pcre2.cpp
  std::shared_ptr<State> state_;
};

}  // namespace flatshard
