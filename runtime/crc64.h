#pragma once
// CRC-64/XZ, as the xz tools compute it, in a form that lets many processes sum one text. Without the initial
// and final complement a CRC is linear: the sum of a text is the XOR of the sums of its parts, each extended
// over the bytes that follow it.

#include <cstddef>
#include <cstdint>
#include <span>

namespace flatshard {

// The CRC of a text.
uint64_t crc64(std::span<const std::byte> text);

// The linear form: extends `sum`, initially 0, over these bytes.
uint64_t crc64_add(uint64_t sum, std::span<const std::byte> bytes);
// Extends a sum over this many zero bytes, in logarithmic time.
uint64_t crc64_carry(uint64_t sum, uint64_t zero_bytes);
// The CRC of a text of this length, from its linear sum.
uint64_t crc64_finish(uint64_t sum, uint64_t length);

}  // namespace flatshard
