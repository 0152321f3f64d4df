#pragma once
// The shared-memory swizzles of tensor copies and wgmma: within a pattern of 8 rows, the 16-byte chunks of a
// row are permuted by the row's index, so that a column of chunks covers all banks. The swizzle applies to
// the address, so a tile must start at a pattern boundary.

#include <cstdint>

namespace flatshard::ptx_vm {

enum class Swizzle : uint8_t { none, bytes_32, bytes_64, bytes_128 };

// Of a row of the pattern; where nothing is swizzled, of a chunk.
constexpr uint32_t row_bytes(Swizzle s) { return uint32_t{16} << static_cast<uint32_t>(s); }

// The alignment of a tile: 8 rows.
constexpr uint32_t pattern_bytes(Swizzle s) { return s == Swizzle::none ? 16 : 8 * row_bytes(s); }

constexpr uint32_t swizzled(Swizzle s, uint32_t address) {
  const uint32_t rows = row_bytes(s) / 16 - 1;  // that differ: 0, 1, 3, 7
  return address ^ ((address >> 7 & rows) << 4);
}

}  // namespace flatshard::ptx_vm
