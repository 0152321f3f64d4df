#include "text/words/regex.h"

#include <vector>

#include "tests/test.h"
#include "tests/text_libraries.h"

using namespace flatshard;

namespace {

// The matches of a pattern, each in parentheses.
std::string found(const std::string& pattern, const std::string& text) {
  const Regex regex(pattern);
  RegexSearch search(regex, text);
  std::string all;
  TextRange match;
  for (size_t from = 0; from <= text.size() && search.next(from, &match);
       from = match.end > match.begin ? match.end : match.end + 1)
    all += '(' + text.substr(match.begin, match.end - match.begin) + ')';
  return all;
}

}  // namespace

TEST_CASE("the name of a script means its characters, not those that are used with it") {
  if (test::lacks_text_libraries()) return;
  const std::string text = "a漢・々ーカ";  // U+30FB and U+30FC are used with Han, Hiragana and Katakana
  CHECK(found("\\p{Han}+", text) == "(漢)(々)");
  CHECK(found("\\p{Hani}+", text) == "(漢)(々)");
  CHECK(found("\\p{han}+", text) == "(漢)(々)");
  CHECK(found("[\\p{Han}]+", text) == "(漢)(々)");
  CHECK(found("\\P{Han}+", text) == "(a)(・)(ーカ)");
  CHECK(found("\\p{^Han}+", text) == "(a)(・)(ーカ)");
  CHECK(found("[^\\p{Han}]+", text) == "(a)(・)(ーカ)");
  CHECK(found("\\p{Katakana}", text) == "(カ)");
  CHECK(found("\\p{Script=Han}|\\p{sc:Katakana}", text) == "(漢)(々)(カ)");
  CHECK(found("\\p{L}+", text) == "(a漢)(々ーカ)");
}

TEST_CASE("brackets contain brackets, intersections and negated sets") {
  if (test::lacks_text_libraries()) return;
  CHECK(found("[\\p{L}&&[^\\p{Han}]]+", "ab漢c") == "(ab)(c)");
  CHECK(found("[a-d&&[^c]]+", "abcde") == "(ab)(d)");
  CHECK(found("[^a-d&&[^c]]+", "abcde") == "(c)(e)");
  CHECK(found("[a[bx]c]+", "abcdx") == "(abc)(x)");
  CHECK(found("[^\\S\\n]+", "a \t\nb\u180e") == "( \t)");
  CHECK(found("[\\Wa]+", "ab-a") == "(a)(-a)");
  CHECK(found("\\w+", "x²³¹¼½¾⁴Ė½") == "(x²³¹¼½¾)(Ė½)");  // outside of brackets only
  CHECK(found("[^\\w\\s]+|\\W", "a¼½-b") == "(¼½-)");
  CHECK(found("[\\w]+|\\ba", "x¼a ½a a") == "(x)(a)(a)(a)");
  CHECK(found("\\ba", "¼a a") == "(a)");
  CHECK(found("[]a]+", "]ab") == "(]a)");
  CHECK(found("[[:alpha:]1]+", "a〇1-") == "(a〇1)");
  CHECK(found("[[:punct:]]+", "a§+©x€!") == "(§+©)(€!)");
  CHECK(found("[[:upper:]]+|[[:lower:]]{3}", "AⅣⓑªbͅⅳ") == "(AⅣ)(ⓑªb)");
  CHECK(found("[[:space:]]+|[[:blank:]]", "a \u180e\n\u2028b\u3000") == "( )(\n\u2028)(\u3000)");
}

TEST_CASE("quantifiers, anchors and options mean what they mean in Oniguruma") {
  if (test::lacks_text_libraries()) return;
  CHECK(found("\\p{N}{1,3}+", "12345 6") == "(12345)(6)");
  CHECK(found("(?:ab){2}+c", "ababababc") == "(ababababc)");
  CHECK(found("a{,2}b", "aaab") == "(aab)");
  CHECK(found("xa{2}?", "xaax") == "(xaa)(x)");
  CHECK(found("a++ab|aa", "aaab") == "(aa)");
  CHECK(found("^b|a$", "a\nb") == "(a)(b)");
  CHECK(found("(?m:a.)|b.", "a\nb\n") == "(a\n)");
  CHECK(found("\\h+", "x0fG") == "(0f)");
  CHECK(found("\\bx", "x e\u0301x") == "(x)");  // marks are parts of words
  CHECK(found("(?#no ( [ here)(?<n>a)\\k<n>", "aa") == "(aa)");
  CHECK(found("\\u0041", "aA") == "(A)");
}

TEST_CASE("a pattern that backtracks without bound is refused by its name, an ordinary one takes any text") {
  if (test::lacks_text_libraries()) return;
  const std::string line(100'000, 'a');
  for (const char* pattern : {".*.*=.*", "(a+)+[bc]", "a*a*a*[bc]", "(?=(a*))\\1[bc]", "(a+)\\1[bc]"}) {
    CAPTURE(pattern);
    const std::string error = test::error_of([&] { found(pattern, line + "\n="); });
    CHECK_MESSAGE(
        error.starts_with(std::string("the tokenizer's pattern ") + pattern + " cannot be matched at byte "),
        error);
  }
  for (const char* pattern : {"\\s+(?!\\S)|\\s+|\\w+", ".*\\n?", "[^=]*=?", "(?:a|b)+", "\\p{L}{1,3}"}) {
    CAPTURE(pattern);
    CHECK_FALSE(found(pattern, line).empty());
    CHECK_FALSE(found(pattern, std::string(100'000, ' ') + "ab ").empty());
  }
}
