#pragma once
// The layout of tensor-core operands: the lane, the register and the half of the register that hold an
// element. Registers are numbered within the operand; the low half comes first.

#include <cstdint>

namespace flatshard::ptx_vm {

struct FragmentPlace {
  uint32_t lane, reg, half;
  bool operator==(const FragmentPlace&) const = default;
};

// A of mma m16n8k16 and m16n8k8, 16-bit elements: (16, k). Also one warp's 16 rows of A in wgmma.
constexpr FragmentPlace place_in_a(uint32_t row, uint32_t k) {
  return {row % 8 * 4 + k % 8 / 2, row / 8 + k / 8 * 2, k % 2};
}

// B of the same: (k, 8).
constexpr FragmentPlace place_in_b(uint32_t k, uint32_t column) {
  return {column * 4 + k % 8 / 2, k / 8, k % 2};
}

// C and D, 32-bit elements: (16, n), n a multiple of 8. D of one product can therefore be A of the next
// without shuffles.
constexpr FragmentPlace place_in_accumulator(uint32_t row, uint32_t column) {
  return {row % 8 * 4 + column % 8 / 2, column / 8 * 4 + row / 8 * 2 + column % 2, 0};
}

// Matrix `matrix` of ldmatrix and stmatrix: (8, 8) of 16 bits. The address of its row r comes from lane
// 8 matrix + r.
constexpr FragmentPlace place_in_matrix(uint32_t matrix, uint32_t row, uint32_t column, bool transposed) {
  if (transposed) return place_in_matrix(matrix, column, row, false);
  return {row * 4 + column / 2, matrix, column % 2};
}

}  // namespace flatshard::ptx_vm
