#include "text/words/unicode.h"

#include <string>

#include "runtime/utf8.h"
#include "tests/test.h"
#include "text/words/valid_text.h"

using namespace flatshard;

namespace {

bool cannot_run() {
  const std::string missing = test::error_of([] { char_sets(); });
  if (!missing.empty()) test::skip(missing);
  return !missing.empty();
}

std::string formed(NormalForm form, const std::string& text) {
  AlignedText out;
  return normalize(form, {.text = text}, &out) ? out.text : text;
}

}  // namespace

TEST_CASE("normal forms join, split and order characters, and record their origins") {
  if (cannot_run()) return;
  const std::string text = "a e\u0327\u0301 b";
  AlignedText out;
  REQUIRE(normalize(NormalForm::nfc, {.text = text, .base = 10}, &out));
  CHECK(out.text == "a \u0229\u0301 b");
  CHECK(out.origins == std::vector<uint32_t>{10, 11, 12, 12, 12, 12, 17, 18});
  CHECK_FALSE(normalize(NormalForm::nfc, {.text = "\u00e9 \uac00 plain"}, &out));
  CHECK(formed(NormalForm::nfd, "\u1e69\uac01") == "s\u0323\u0307\u1100\u1161\u11a8");
  CHECK(formed(NormalForm::nfc, "s\u0307\u0323\u1100\u1161\u11a8") == "\u1e69\uac01");
  CHECK(formed(NormalForm::nfkc, "\ufb01 \u2460 \uff21\u030a") == "fi 1 \u00c5");
  CHECK(formed(NormalForm::nfkd, "\u00c5\ufdfa").starts_with("A\u030a\u0635"));
}

TEST_CASE("characters newer than Unicode 9 are not normalized") {
  if (cannot_run()) return;
  CHECK(formed(NormalForm::nfkc, "\u32ff") == "\u32ff");                                  // 12.1
  CHECK(formed(NormalForm::nfc, "a\u0345\u07fd") == "a\u0345\u07fd");                     // 11
  CHECK(formed(NormalForm::nfkc, "\U00010781\u0301\u0316") == "\U00010781\u0316\u0301");  // 14
}

TEST_CASE("punctuation is what it was in Unicode 8") {
  if (cannot_run()) return;
  const auto is_punctuation = [](char32_t c) { return (char_sets()[c] & kPunctuation) != 0; };
  for (const char32_t c :
       {U'!', U'$', U'+', U'~', U'\u00a7', U'\u2e42', U'\u3001', U'\u166d', U'\U000111c9'}) {
    CAPTURE(static_cast<uint32_t>(c));
    CHECK(is_punctuation(c));
  }
  for (const char32_t c : {U'a', U'\x7f', U'\u00a3', U'\u09fd', U'\u0a76', U'\u0c77', U'\u2e43', U'\u2e52',
                           U'\U0001145b', U'\U0001e95f'}) {
    CAPTURE(static_cast<uint32_t>(c));
    CHECK_FALSE(is_punctuation(c));
  }
}

TEST_CASE("a long run of marks is sorted in reasonable time") {
  if (cannot_run()) return;
  std::string text = "a";
  for (int i = 0; i < 100000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0316";
  const std::string sorted = formed(NormalForm::nfd, text);
  CHECK(sorted.size() == text.size());
  CHECK(sorted.starts_with("a\u0316\u0316"));
}

TEST_CASE("invalid bytes become replacement characters that record their origin") {
  const std::string bytes = "a\xff\xe2\x82z";
  const ValidText valid(bytes);
  CHECK(valid.view().text == "a\ufffd\ufffdz");
  CHECK(valid.view().origin(4) == 2);
  CHECK(valid.view().origin(7) == 4);
}
