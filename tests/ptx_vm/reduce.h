#pragma once
// What cp.reduce.async does to each element of global or shared memory.

#include <cstdint>
#include <string_view>

#include "tests/ptx_vm/hw/tensor_map.h"

namespace flatshard::ptx_vm {

struct Warp;

// to[i] = op(to[i], from[i]) for as many elements as lie in `bytes`.
using Combine = void (*)(unsigned char* to, const unsigned char* from, uint64_t bytes);

// Null when the operation does not exist for the type.
Combine combine_of(std::string_view operation, Element element);

// A float is about to be added to global memory by several threads or works, in no order: a finding, unless
// the kernel may. The last bits of the sum depend on the order.
void check_float_add(const Warp& warp, int lane, uint64_t address);

}  // namespace flatshard::ptx_vm
