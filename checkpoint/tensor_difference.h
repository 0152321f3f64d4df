#pragma once
// How two tensors differ, value by value.

#include <cstdint>
#include <functional>

#include "checkpoint/safetensors.h"

namespace flatshard {

struct TensorDifference {
  bool comparable = false;  // the same shape, and both of floats
  bool equal_bits = false;  // as same_bits() has it
  int64_t elements = 0;     // of the first
  // Of comparable ones: elements whose values differ, NaN being equal to NaN; the largest |a - b|, infinite
  // where one of the two is NaN; and the largest |a - b| / max(|a|, |b|).
  int64_t different = 0;
  double largest = 0, largest_relative = 0;
};

// Whether dtype, shape and bytes are the same.
bool same_bits(const SafetensorsEntry& a, const SafetensorsEntry& b);

// `seen` is told how many elements have been compared since it was called last.
TensorDifference difference(const SafetensorsEntry& a, const SafetensorsEntry& b,
                            const std::function<void(int64_t)>& seen = {});

}  // namespace flatshard
