#include "runtime/check.h"
#include "text/words/regex.h"

namespace flatshard {

Regex::Regex(const std::string& pattern) {
  fail(str(
      "the pattern ", pattern,
      " needs PCRE2, which this build does not have: install libpcre2-dev, then configure and build again"));
}

RegexSearch::RegexSearch(const Regex& regex, std::string_view text) : regex_(regex), text_(text) {}

bool RegexSearch::next(size_t, TextRange*) { return false; }

}  // namespace flatshard
