#pragma once
// CRC-64/XZ, as the xz tools compute it, in a form that lets many processes sum one text: without its first
// and last complement a CRC is linear, so the sum of a text is the XOR of the sums of its parts, each carried
// on over the bytes that follow it.

#include <cstddef>
#include <cstdint>
#include <span>

namespace flatshard {

// The plain CRC: all of one text.
uint64_t crc64(std::span<const std::byte> text);

// The linear form. A sum that stands at `sum`, carried on over these bytes; it begins at 0.
uint64_t crc64_add(uint64_t sum, std::span<const std::byte> bytes);
// The same over as many zero bytes, in time that hardly depends on how many.
uint64_t crc64_carry(uint64_t sum, uint64_t zero_bytes);
// The plain CRC of a text of this length from its linear sum.
uint64_t crc64_finish(uint64_t sum, uint64_t length);

}  // namespace flatshard
