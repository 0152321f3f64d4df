#pragma once
// Kernels that copy one box of a tensor, for tests that compare them with plain loops. The driver API encodes
// the tensor maps.

#include <cstdint>
#include <string>
#include <vector>

#include "ptx_vm/hw/tensor_map.h"

namespace flatshard::ptx_vm {

// The rule that the map violates according to the encoder, or nothing.
std::string encode_error(const TensorMap& map);

// Loads the box at these coordinates to a multiple of 1024 in shared memory. Returns `bytes` bytes of shared
// memory, which are 0xff where nothing was loaded; empty if the launch failed.
std::vector<unsigned char> load_box(const TensorMap& map, const Coordinates& at, uint32_t bytes);
enum class Store { copy, add };
// Stores these bytes from shared memory as the box at these coordinates.
void store_box(const TensorMap& map, const Coordinates& at, const std::vector<unsigned char>& shared,
               Store how);
// Loads with a map whose rank differs from the instruction's, and from memory that is not a map.
void load_with_wrong_rank(const TensorMap& map);
void load_without_map();

}  // namespace flatshard::ptx_vm
