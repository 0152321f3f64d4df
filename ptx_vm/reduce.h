#pragma once
// The element-wise operations of cp.reduce.async on global and shared memory.

#include <cstdint>
#include <string_view>

#include "ptx_vm/hw/tensor_map.h"

namespace flatshard::ptx_vm {

struct Warp;

// Computes to[i] = op(to[i], from[i]) for all elements in `bytes` bytes.
using Combine = void (*)(unsigned char* to, const unsigned char* from, uint64_t bytes);

// Returns null if the operation does not exist for the type.
Combine combine_of(std::string_view operation, Element element);

// Threads and works that nothing orders add floats in any order, on which the last bits of the sum depend.
// Returns whether the kernel may do so.
bool may_add_floats(const Warp& warp);
// Called before threads add a float to global memory: a finding unless the kernel may do so.
void check_float_add(const Warp& warp, int lane, uint64_t address);

}  // namespace flatshard::ptx_vm
