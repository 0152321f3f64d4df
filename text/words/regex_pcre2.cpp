#include <pcre2.h>

#include "runtime/check.h"
#include "text/words/regex.h"

namespace flatshard {
namespace {

// The sets that PCRE2 defines otherwise: its \s has U+180E, its \w has no marks.
constexpr char kSpaces[] = "\\x09-\\x0d\\x85\\p{Z}";
constexpr char kWords[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}"
    "-\\x{1f189}";

// The pattern with those sets spelled out. Inside of [...] the negated ones keep PCRE2's meaning.
std::string translated(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      continue;
    }
    if (c == ']') in_class = false;
    if (c != '\\' || i + 1 == pattern.size()) {
      out += c;
      continue;
    }
    const char letter = pattern[++i];
    const char* const set = letter == 's' || letter == 'S' ? kSpaces : kWords;
    if (letter == 's' || letter == 'w')
      out += in_class ? std::string(set) : str('[', set, ']');
    else if ((letter == 'S' || letter == 'W') && !in_class)
      out += str("[^", set, ']');
    else
      out += {c, letter};
  }
  return out;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

Regex::Regex(const std::string& pattern) {
  const std::string text = translated(pattern);
  int error = 0;
  size_t at = 0;
  pcre2_code* const code = pcre2_compile(
      units(text), text.size(), PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (code == nullptr)
    fail(str("the pattern ", pattern, " is invalid near byte ", at, ": ", message_of(error)));
  compiled_ = {code, [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); }};
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it is impossible, matching is only slower
}

RegexSearch::RegexSearch(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), found_(pcre2_match_data_create(1, nullptr), [](void* p) {
        pcre2_match_data_free(static_cast<pcre2_match_data*>(p));
      }) {}

bool RegexSearch::next(size_t from, TextRange* match) {
  const auto* const code = static_cast<const pcre2_code*>(regex_.compiled_.get());
  auto* const found = static_cast<pcre2_match_data*>(found_.get());
  const auto search = [&](uint32_t options) {
    return pcre2_match(code, units(text_), text_.size(), from, options | PCRE2_NO_UTF_CHECK, found, nullptr);
  };
  int result = search(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = search(PCRE2_NO_JIT);  // has the heap to backtrack in
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    fail(str("a pattern of the tokenizer cannot be matched at byte ", from, " of a text of ", text_.size(),
             " bytes: ", message_of(result)));
  const size_t* const ends = pcre2_get_ovector_pointer(found);
  *match = {ends[0], ends[1]};
  return true;
}

}  // namespace flatshard
