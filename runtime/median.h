#pragma once
// The median of numbers. For an even count it is the upper of the two middle values.

#include <algorithm>
#include <vector>

namespace flatshard {

// `values` must not be empty.
template <typename T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace flatshard
