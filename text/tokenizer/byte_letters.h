#pragma once
// The alphabet of byte-level tokenizers: a letter for each byte, so that every token is printable text. Bytes
// 33 to 126, 161 to 172 and 174 to 255 are the code points of the same number; the others, in ascending
// order, are U+0100, U+0101 and so on. A space is U+0120.

#include <optional>
#include <string>
#include <string_view>

namespace flatshard {

// Spells the bytes as letters.
std::string letters_of_bytes(std::string_view bytes);
// The bytes that these letters stand for; nothing if a character is not a letter of the alphabet.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace flatshard
