#pragma once
// What cp.reduce.async does to each element of global or shared memory.

#include <cstdint>
#include <string_view>

#include "tests/ptx_vm/hw/tensor_map.h"

namespace flatshard::ptx_vm {

// to[i] = op(to[i], from[i]) for as many elements as lie in `bytes`.
using Combine = void (*)(unsigned char* to, const unsigned char* from, uint64_t bytes);

// Null when the operation does not exist for the type.
Combine combine_of(std::string_view operation, Element element);

}  // namespace flatshard::ptx_vm
