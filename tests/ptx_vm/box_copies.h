#pragma once
// Kernels that copy one box of a tensor, for tests that compare with loops. The maps are made by the driver's
// encoder.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx_vm/hw/tensor_map.h"

namespace flatshard::ptx_vm {

// What the encoder says of the map: nothing, or the rule that it breaks.
std::string encode_error(const TensorMap& map);

// The bytes of shared memory after the box at these coordinates was loaded to a multiple of 1024; `bytes` of
// them, 0xff where nothing was loaded. Empty where the launch failed.
std::vector<unsigned char> load_box(const TensorMap& map, const Coordinates& at, uint32_t bytes);
enum class Store { copy, add };
// Stores these bytes of shared memory as the box at these coordinates.
void store_box(const TensorMap& map, const Coordinates& at, const std::vector<unsigned char>& shared,
               Store how);
// Loads by a map of another rank than the instruction's, and from what is no map.
void load_with_wrong_rank(const TensorMap& map);
void load_without_map();

}  // namespace flatshard::ptx_vm
