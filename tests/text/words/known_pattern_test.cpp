#include "text/words/known_pattern.h"

#include <vector>

#include "runtime/rng.h"
#include "runtime/utf8.h"
#include "tests/test.h"
#include "tests/text_libraries.h"
#include "text/words/regex.h"
#include "text/words/unicode.h"

using namespace flatshard;

namespace {

// Code points that both libraries put into the same of the three sets: their versions of Unicode may differ.
std::vector<char32_t> agreed_characters() {
  const Regex letter("\\p{L}"), number("\\p{N}"), space("\\s");
  std::vector<char32_t> agreed;
  for (char32_t c = 1; c < 0x110000; c = c < 0x3000 ? c + 1 : c + 37) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    append_utf8(text, c);
    const auto is = [&](const Regex& set) {
      TextRange match;
      return RegexSearch(set, text).next(0, &match);
    };
    const uint8_t sets = char_sets()[c];
    if (is(letter) == ((sets & kLetter) != 0) && is(number) == ((sets & kNumber) != 0) &&
        is(space) == ((sets & kSpace) != 0))
      agreed.push_back(c);
    else
      CHECK_MESSAGE(c > 0x2fff, "the libraries disagree about an old character: ", static_cast<uint32_t>(c));
  }
  return agreed;
}

// Words, spaces, contractions and characters of all kinds in random order.
std::string generated_text(const RandomStream& random, const std::vector<char32_t>& characters,
                           int64_t first) {
  static const std::vector<std::string> kPieces{" ",   "  ",     "\n",      "\r\n",   "\t", "'s", "'S",
                                                "'ll", "'Re",    "'\u017f", "'",      "a",  "Zz", "7",
                                                "42",  "\u00e9", "\u0301",  "\u00a0", "!?", "-"};
  std::string text;
  for (int64_t i = 0; i < 60; ++i) {
    const uint32_t bits = random.bits(first * 64 + i);
    if (bits % 3 == 0)
      append_utf8(text, characters[bits / 3 % characters.size()]);
    else
      text += kPieces[bits / 3 % kPieces.size()];
  }
  return text;
}

}  // namespace

TEST_CASE("hand-written splitters cut generated text as PCRE2 does") {
  if (test::lacks_text_libraries()) return;
  const std::vector<char32_t> characters = agreed_characters();
  CHECK(characters.size() > 40000);
  const RandomStream random(17, "known patterns");
  for (const char* expression : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern}) {
    const std::optional<KnownPattern> known = KnownPattern::of(expression);
    REQUIRE(known);
    const Regex regex(expression);
    for (int64_t i = 0; i < 2000; ++i) {
      const std::string text = generated_text(random, characters, i);
      RegexSearch search(regex, text);
      for (size_t at = 0; at < text.size();) {
        TextRange match;
        REQUIRE(search.next(at, &match));
        const size_t end = known->end_of_match(text, at);
        if (match.begin != at || match.end != end) {
          CAPTURE(expression);
          CAPTURE(text);
          CAPTURE(at);
          REQUIRE(match.begin == at);
          REQUIRE(match.end == end);
        }
        at = end;
      }
    }
  }
}

TEST_CASE("only the exact expressions have a hand-written splitter") {
  if (test::lacks_text_libraries()) return;
  CHECK_FALSE(KnownPattern::of(std::string(kGpt2Pattern) + "|x"));
  CHECK_FALSE(KnownPattern::of(""));
}

TEST_CASE("an expression that backtracks too long is an error, and a long match is not") {
  if (test::lacks_text_libraries()) return;
  TextRange match;
  const std::string many(100000, 'a');
  CHECK(RegexSearch(Regex("(a|b)+"), many).next(0, &match));
  CHECK(match.end == many.size());
  const std::string trap = std::string(40, 'a') + "!";
  CHECK(test::error_of([&] {
          RegexSearch(Regex("^(a+)+$"), trap).next(0, &match);
        }).find("cannot be matched") != std::string::npos);
}
