#include "runtime/utf8.h"

#include <cstdint>
#include <cstring>

namespace flatshard {

Utf8Front utf8_front(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = at(0);
  if (first < 0x80) return {.length = 1, .valid = true};
  if (first < 0xc2 || first > 0xf4) return {.length = 1};
  const size_t needed = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  const unsigned least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;  // range of the second byte
  const unsigned most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  size_t length = 1;
  while (length < needed && length < text.size() && at(length) >= (length == 1 ? least : 0x80) &&
         at(length) <= (length == 1 ? most : 0xbf))
    ++length;
  return {.length = length, .valid = length == needed, .cut_off = length < needed && length == text.size()};
}

size_t valid_utf8_prefix(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    uint64_t block = 0;
    while (i + sizeof block <= text.size()) {
      std::memcpy(&block, text.data() + i, sizeof block);
      if ((block & 0x8080808080808080u) != 0) break;
      i += sizeof block;
    }
    if (i == text.size()) break;
    const Utf8Front front = utf8_front(text.substr(i));
    if (!front.valid) return i;
    i += front.length;
  }
  return text.size();
}

void append_utf8(std::string& text, char32_t c) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) {
    add(c);
  } else if (c < 0x800) {
    add(0xc0 | c >> 6);
    add(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    add(0xe0 | c >> 12);
    add(0x80 | (c >> 6 & 0x3f));
    add(0x80 | (c & 0x3f));
  } else {
    add(0xf0 | c >> 18);
    add(0x80 | (c >> 12 & 0x3f));
    add(0x80 | (c >> 6 & 0x3f));
    add(0x80 | (c & 0x3f));
  }
}

}  // namespace flatshard
