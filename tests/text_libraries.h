#pragma once
// Tests of text need PCRE2 and utf8proc, which a build may lack.

#include "tests/test.h"
#include "text/words/regex.h"
#include "text/words/unicode.h"

namespace flatshard::test {

// Whether the build lacks a library. If so, skips the test.
inline bool lacks_text_libraries() {
  const std::string missing = error_of([] {
    char_sets();
    Regex("a");
  });
  if (!missing.empty()) skip(missing);
  return !missing.empty();
}

}  // namespace flatshard::test
