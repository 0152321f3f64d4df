#pragma once
// The differences between two tensors, value by value.

#include <cstdint>
#include <functional>

#include "checkpoint/safetensors.h"

namespace flatshard {

struct TensorDifference {
  bool comparable = false;  // both have the same shape and float dtypes
  bool equal_bits = false;  // the result of same_bits()
  int64_t elements = 0;     // elements of the first tensor
  // If comparable: the number of elements whose values differ (NaN equals NaN), the largest |a - b|, which is
  // infinite if only one of the two is NaN, and the largest |a - b| / max(|a|, |b|).
  int64_t different = 0;
  double largest = 0, largest_relative = 0;
};

// Returns whether dtype, shape and bytes are the same.
bool same_bits(const SafetensorsEntry& a, const SafetensorsEntry& b);

// The difference of values that two functions read. Their bits are compared in fp32.
using ReadElements = std::function<void(int64_t first, int64_t count, float* to)>;
TensorDifference difference(int64_t elements, const ReadElements& a, const ReadElements& b,
                            const std::function<void(int64_t)>& seen = {});

// Compares two tensors of files. Calls `seen` with the number of elements compared since its last call.
TensorDifference difference(const SafetensorsEntry& a, const SafetensorsEntry& b,
                            const std::function<void(int64_t)>& seen = {});

}  // namespace flatshard
