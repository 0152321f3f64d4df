#pragma once
// Inputs for the tests of samples: values in [-1, 1), the same on every machine.

#include <cstdint>
#include <vector>

#include "runtime/dtype.h"

namespace flatshard::ptx_vm {

inline std::vector<bf16> numbers(int64_t count, uint32_t seed) {
  std::vector<bf16> all(static_cast<size_t>(count));
  for (bf16& value : all) {
    seed = seed * 1664525u + 1013904223u;
    value = bf16(static_cast<float>(seed >> 8) * 0x1p-23f - 1.0f);
  }
  return all;
}

}  // namespace flatshard::ptx_vm
