#include "text/tokenizer/byte_letters.h"

#include <array>
#include <cstdint>

#include "runtime/utf8.h"

namespace flatshard {
namespace {

constexpr char32_t kFirstMoved = 0x100, kMoved = 68;

struct Alphabet {
  std::array<char32_t, 256> letters{};
  std::array<int16_t, kFirstMoved + kMoved> bytes{};  // byte of each letter; -1 if there is none

  constexpr Alphabet() {
    bytes.fill(-1);
    char32_t moved = kFirstMoved;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
      letters[byte] = printable ? byte : moved++;
      bytes[letters[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

std::string letters_of_bytes(std::string_view bytes) {
  std::string letters;
  for (const char byte : bytes) append_utf8(letters, kAlphabet.letters[static_cast<unsigned char>(byte)]);
  return letters;
}

std::optional<std::string> bytes_of_letters(std::string_view letters) {
  std::string bytes;
  for (size_t at = 0; at < letters.size();) {
    const char32_t letter = next_code_point(letters, at);
    if (letter >= kAlphabet.bytes.size() || kAlphabet.bytes[letter] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.bytes[letter]);
  }
  return bytes;
}

}  // namespace flatshard
