#pragma once
// Regular expressions over UTF-8 text, in the syntax of tokenizer files (Oniguruma's): \s is Unicode
// White_Space, and \w letters, marks, digits and connectors. regex_pcre2.cpp rewrites them for PCRE2 and
// compiles them with its just-in-time compiler. In a build without PCRE2, regex_missing.cpp has a constructor
// that throws an Error with the name of the package.

#include <memory>
#include <string>
#include <string_view>

#include "text/words/aligned_text.h"

namespace flatshard {

class Regex {
 public:
  // Throws an Error with the position of a mistake in the pattern.
  explicit Regex(const std::string& pattern);

 private:
  friend class RegexSearch;
  std::shared_ptr<const void> compiled_;
};

// Searches one text, which must be valid UTF-8 and outlive the object. Several searches may use one Regex at
// the same time.
class RegexSearch {
 public:
  RegexSearch(const Regex& regex, std::string_view text);
  // Finds the first match that begins at `from` or later. Throws an Error that names the pattern if all
  // searches together take more work than a multiple of the text's size: patterns are untrusted.
  bool next(size_t from, TextRange* match);

 private:
  const Regex& regex_;
  std::string_view text_;
  struct State;  // defined in regex_pcre2.cpp
  std::shared_ptr<State> state_;
};

}  // namespace flatshard
