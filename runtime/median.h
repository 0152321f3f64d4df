#pragma once
// The median of numbers; of an even count the upper of the two in the middle.

#include <algorithm>
#include <vector>

namespace flatshard {

// There must be at least one.
template <typename T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace flatshard
