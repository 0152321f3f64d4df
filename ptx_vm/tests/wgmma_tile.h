#pragma once
// Tiles for the tests of wgmma.

#include "ptx_vm/hw/wgmma.h"

namespace flatshard::ptx_vm {

inline constexpr Swizzle kSwizzles[] = {Swizzle::none, Swizzle::bytes_32, Swizzle::bytes_64,
                                        Swizzle::bytes_128};

// A tile of `rows` by 16 elements, with contiguous pieces from address 0 on.
inline MatrixDescriptor packed(Swizzle s, bool transposed, uint32_t rows) {
  const uint32_t piece = 8 * row_bytes(s);
  if (s == Swizzle::none) return {.leading = rows / 8 * piece, .stride = piece};
  return {.leading = transposed ? 2 * piece : 0, .stride = piece, .swizzle = s};
}

}  // namespace flatshard::ptx_vm
