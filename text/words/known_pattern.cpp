#include "text/words/known_pattern.h"

#include "runtime/utf8.h"
#include "text/words/unicode.h"

namespace flatshard {
namespace {

// A character of the text: its sets and its end. Beyond the end of the text, there are no sets.
struct Character {
  uint8_t sets = 0;
  size_t end = 0;
};

class Reader {
 public:
  Reader(std::string_view text, const uint8_t* sets) : text_(text), sets_(sets) {}

  bool ended(size_t at) const { return at >= text_.size(); }
  char byte(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  bool is_newline(size_t at) const { return byte(at) == '\r' || byte(at) == '\n'; }

  Character at(size_t i) const {
    const unsigned char byte = static_cast<unsigned char>(text_[i]);
    if (byte < 0x80) [[likely]]
      return {sets_[byte], i + 1};
    Character found;
    found.end = i;
    found.sets = sets_[next_code_point(text_, found.end)];
    return found;
  }
  bool is(size_t i, unsigned sets) const { return !ended(i) && (at(i).sets & sets) != 0; }
  bool is_other(size_t i) const { return !ended(i) && (at(i).sets & kNoOther) == 0; }

  // The end of the characters from `i` on that belong to the sets, or, if not `belong`, to none of them.
  size_t skip(size_t i, unsigned sets, bool belong = true) const {
    while (!ended(i)) {
      const Character c = at(i);
      if (((c.sets & sets) != 0) != belong) break;
      i = c.end;
    }
    return i;
  }
  size_t skip_other(size_t i) const { return skip(i, kNoOther, false); }

  // The end of the match of \s+(?!\S)|\s+ at `at`, where white space begins.
  size_t space_end(size_t at) const {
    const size_t end = skip(at, kSpace);
    if (ended(end)) return end;
    const size_t last = at + last_character(text_.substr(at, end - at));
    return last > at ? last : end;
  }

  // The length of a match of 's|'t|'re|'ve|'m|'ll|'d after the apostrophe; 0 if there is none. `any_case` is
  // (?i), which also matches the long s as an s.
  size_t contraction_end(size_t at, bool any_case) const {
    const auto letter = [&](size_t i) {
      const char c = byte(i);
      return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    };
    const char first = letter(at + 1), second = letter(at + 2);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
    if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
    if (first == 'l' && second == 'l') return at + 3;
    return any_case && text_.substr(at + 1).starts_with("\u017f") ? at + 3 : 0;
  }

 private:
  static constexpr unsigned kNoOther = kSpace | kLetter | kNumber;

  std::string_view text_;
  const uint8_t* sets_;
};

}  // namespace

KnownPattern::KnownPattern(bool gpt2, int digits) : sets_(char_sets()), gpt2_(gpt2), digits_(digits) {}

std::optional<KnownPattern> KnownPattern::of(std::string_view expression) {
  if (expression == kGpt2Pattern) return KnownPattern(true, 0);
  if (expression == kLlama3Pattern) return KnownPattern(false, 3);
  if (expression == kQwen2Pattern) return KnownPattern(false, 1);
  return std::nullopt;
}

size_t KnownPattern::end_of_match(std::string_view text, size_t at) const {
  return gpt2_ ? end_gpt2(text, at) : end_llama3(text, at);
}

size_t KnownPattern::end_gpt2(std::string_view text, size_t at) const {
  const Reader reader(text, sets_);
  if (text[at] == '\'')
    if (const size_t end = reader.contraction_end(at, false); end > 0) return end;
  const size_t start = at + (text[at] == ' ');
  if (reader.ended(start)) return start;
  const Character c = reader.at(start);
  if (c.sets & kLetter) return reader.skip(c.end, kLetter);
  if (c.sets & kNumber) return reader.skip(c.end, kNumber);
  if (c.sets & kSpace) return reader.space_end(at);
  return reader.skip_other(c.end);
}

size_t KnownPattern::end_llama3(std::string_view text, size_t at) const {
  const Reader reader(text, sets_);
  if (text[at] == '\'')
    if (const size_t end = reader.contraction_end(at, true); end > 0) return end;
  const Character first = reader.at(at);
  if (first.sets & kLetter) return reader.skip(first.end, kLetter);
  if (first.sets & kNumber) {
    size_t end = first.end;
    for (int i = 1; i < digits_ && reader.is(end, kNumber); ++i) end = reader.at(end).end;
    return end;
  }
  if (!reader.is_newline(at) && reader.is(first.end, kLetter)) return reader.skip(first.end, kLetter);
  const size_t start = at + (text[at] == ' ');
  if (reader.is_other(start)) {
    size_t end = reader.skip_other(start);
    while (reader.is_newline(end)) ++end;
    return end;
  }
  const size_t end = reader.skip(at, kSpace);
  for (size_t i = end; i > at; --i)
    if (reader.is_newline(i - 1)) return i;
  return reader.space_end(at);
}

}  // namespace flatshard
