#pragma once
// UTF-8, strictly: overlong forms, surrogates and code points above U+10FFFF are invalid.

#include <cstddef>
#include <string>
#include <string_view>

namespace flatshard {

inline constexpr char kReplacementCharacter[] = "\xef\xbf\xbd";  // U+FFFD, which replaces invalid bytes

// The first item of a non-empty text: a valid character, or an invalid sequence, which is the longest prefix
// of a valid character (at least one byte). Python and Rust replace such a sequence by one U+FFFD.
struct Utf8Front {
  size_t length = 0;  // length in bytes
  bool valid = false;
  bool cut_off = false;  // invalid so far, but more bytes could complete it
};
Utf8Front utf8_front(std::string_view text);

// The number of bytes before the first invalid one.
size_t valid_utf8_prefix(std::string_view text);

// Decodes the character at text[at] and moves `at` past it. The text must be valid UTF-8.
inline char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const char32_t first = byte(0);
  const auto more = [&](size_t i) { return static_cast<char32_t>(byte(i) & 0x3fu); };
  char32_t c = first;
  if (first < 0x80) {
    at += 1;
  } else if (first < 0xe0) {
    c = (first & 0x1fu) << 6 | more(1);
    at += 2;
  } else if (first < 0xf0) {
    c = (first & 0x0fu) << 12 | more(1) << 6 | more(2);
    at += 3;
  } else {
    c = (first & 0x07u) << 18 | more(1) << 12 | more(2) << 6 | more(3);
    at += 4;
  }
  return c;
}

// The start of the last character of valid UTF-8 that is not empty.
inline size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u) --at;
  return at;
}

void append_utf8(std::string& text, char32_t c);

}  // namespace flatshard
