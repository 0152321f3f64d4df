#include "text/jinja/sourced_text.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

// "ab|1:cd" is ab from the template and cd from source 1.
std::string shown(const SourcedText& text) {
  std::string result;
  size_t begin = 0;
  for (const TextRun& run : text.runs()) {
    if (begin > 0) result += '|';
    if (run.source != kFromTemplate) result += std::to_string(run.source) + ':';
    result += text.bytes().substr(begin, run.end - begin);
    begin = run.end;
  }
  return result;
}

SourcedText sample() {
  SourcedText text("<");
  text.append("one", 1);
  text.append("two", 2);
  text.append(">");
  return text;
}

}  // namespace

TEST_CASE("appended texts keep their sources, and neighbors with one source are one run") {
  SourcedText text = sample();
  CHECK(shown(text) == "<|1:one|2:two|>");
  text.append("x");
  text.append(SourcedText("y"));
  CHECK(shown(text) == "<|1:one|2:two|>xy");
  text.append("");
  CHECK(text.runs().size() == 4);
}

TEST_CASE("every slice of a text has the sources of its bytes") {
  const SourcedText text = sample();
  CHECK(shown(text.slice(2, 5)) == "1:ne|2:t");
  CHECK(shown(text.slice(1, 4)) == "1:one");
  CHECK(shown(text.slice(4, 4)).empty());
  for (size_t begin = 0; begin <= text.size(); ++begin)
    for (size_t end = begin; end <= text.size(); ++end)
      CHECK(text.slice(begin, end).bytes() == text.bytes().substr(begin, end - begin));
}

TEST_CASE("a change of letters keeps the sources, even when the text becomes longer") {
  SourcedText text("\xc8\xba");  // its lower case has one byte more
  text.append("\xc3\x89T", 3);
  CHECK(shown(lower(text)) == "\xe2\xb1\xa5|3:\xc3\xa9t");
  CHECK(shown(upper(sample())) == "<|1:ONE|2:TWO|>");
  CHECK(test::error_of([] {
          upper(
              SourcedText("stra\xc3\x9f"
                          "e"));
        }) == "upper case of U+df is not supported");
}

TEST_CASE("stripping removes what Python calls white space, or the code points that are given") {
  const auto strip = [](const std::string& text, const char* characters = "") {
    const auto [begin, end] = stripped(text, true, true, characters);
    return text.substr(begin, end - begin);
  };
  CHECK(strip(" \t\n\x1c\xc2\xa0\xe3\x80\x80x y\xe2\x80\xa8 ") == "x y");
  CHECK(strip("\xe2\x80\x8bx") == "\xe2\x80\x8bx");  // U+200B is none
  CHECK(strip(" \n ").empty());
  CHECK(strip("\xc3\xa9"
              "ab\xc3\xa9"
              "a",
              "a\xc3\xa9") == "b");
}

TEST_CASE("a text cannot grow without bound") {
  SourcedText text(std::string(SourcedText::kMostBytes, 'x'));
  CHECK(test::error_of([&] { text.append("y"); }) == "a text has more than 16777216 bytes");
}
