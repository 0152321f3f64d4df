#pragma once
// The operands of wgmma: the descriptor of a matrix of 16-bit elements in shared memory, and the addresses of
// its elements. For each warp's 16 rows, D and an A in registers have the layout of mma (fragments.h).

#include <cstdint>

#include "ptx_vm/hw/swizzle.h"

namespace flatshard::ptx_vm {

struct MatrixDescriptor {
  uint32_t start = 0;        // bytes, as all of these multiples of 16 below 2^18
  uint32_t leading = 0;      // from one core matrix to the next along the ...
  uint32_t stride = 0;       // ... and along the other dimension
  uint32_t base_offset = 0;  // of a pattern that does not begin at a multiple of its size
  Swizzle swizzle = Swizzle::none;
  bool operator==(const MatrixDescriptor&) const = default;
};

constexpr uint64_t pack(const MatrixDescriptor& m) {
  const uint64_t layout = m.swizzle == Swizzle::none ? 0 : 4 - static_cast<uint64_t>(m.swizzle);
  return uint64_t{m.start >> 4} | uint64_t{m.leading >> 4} << 16 | uint64_t{m.stride >> 4} << 32 |
         uint64_t{m.base_offset} << 49 | layout << 62;
}

constexpr MatrixDescriptor unpack(uint64_t bits) {
  const auto field = [&](int at) { return static_cast<uint32_t>(bits >> at & 0x3fff) << 4; };
  const auto layout = static_cast<uint8_t>(bits >> 62);
  return {.start = field(0),
          .leading = field(16),
          .stride = field(32),
          .base_offset = static_cast<uint32_t>(bits >> 49 & 7),
          .swizzle = layout == 0 ? Swizzle::none : static_cast<Swizzle>(4 - layout)};
}

// A start address within the first row of the pattern advances along k (or m, n); any other is an error.
constexpr bool begins_at_a_pattern(const MatrixDescriptor& m) {
  const uint32_t row = m.swizzle == Swizzle::none ? 16 : row_bytes(m.swizzle);
  return m.base_offset == 0 && m.start % pattern_bytes(m.swizzle) < row;
}

// Whether `count` rows or columns from the start on, of 16 k, stay within the pattern's rows.
constexpr bool stays_in_rows(const MatrixDescriptor& m, bool transposed, uint32_t count) {
  const uint32_t row = row_bytes(m.swizzle), along = transposed && 2 * count < row ? 2 * count
                                                     : transposed                  ? row
                                                                                   : 32;
  return m.swizzle == Swizzle::none || m.start % row + along <= row;
}

// The offset of element (i, k), i a row of A or a column of B, if k is contiguous in memory ...
constexpr uint32_t address_k_major(const MatrixDescriptor& m, uint32_t i, uint32_t k) {
  const uint32_t row = row_bytes(m.swizzle),
                 along_k = m.swizzle == Swizzle::none ? k / 8 * m.leading + k % 8 * 2 : 2 * k;
  return swizzled(m.swizzle, m.start + i % 8 * row + i / 8 * m.stride + along_k);
}

// ... or if i is: the transposed operand.
constexpr uint32_t address_mn_major(const MatrixDescriptor& m, uint32_t i, uint32_t k) {
  const uint32_t row = row_bytes(m.swizzle), elements = row / 2;
  const bool is_plain = m.swizzle == Swizzle::none;
  const uint32_t across = is_plain ? m.stride : m.leading, along_k = is_plain ? m.leading : m.stride;
  return swizzled(m.swizzle,
                  m.start + i % elements * 2 + i / elements * across + k % 8 * row + k / 8 * along_k);
}

constexpr uint32_t element_address(const MatrixDescriptor& m, bool transposed, uint32_t i, uint32_t k) {
  return transposed ? address_mn_major(m, i, k) : address_k_major(m, i, k);
}

}  // namespace flatshard::ptx_vm
