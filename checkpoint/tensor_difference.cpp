#include "checkpoint/tensor_difference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "checkpoint/float_values.h"

namespace flatshard {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void compare(double a, double b, TensorDifference& d) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return;
  ++d.different;
  const double distance = std::abs(a - b), size = std::max(std::abs(a), std::abs(b));
  const bool finite = std::isfinite(distance);
  d.largest = std::max(d.largest, finite ? distance : kInfinity);
  d.largest_relative = std::max(d.largest_relative, finite ? distance / size : kInfinity);
}

}  // namespace

TensorDifference difference(const SafetensorsEntry& a, const SafetensorsEntry& b,
                            const std::function<void(int64_t)>& seen) {
  TensorDifference d{.elements = element_count(a)};
  d.equal_bits = a.dtype == b.dtype && a.shape == b.shape &&
                 std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
  d.comparable = a.shape == b.shape && float_dtype(a) && float_dtype(b);
  std::vector<float> left, right;
  for (int64_t first = 0; first < d.elements; first += kValueBlock) {
    const int64_t count = std::min(kValueBlock, d.elements - first);
    if (d.comparable && !d.equal_bits) {
      read_floats(a, first, count, left);
      read_floats(b, first, count, right);
      for (size_t i = 0; i < left.size(); ++i) compare(left[i], right[i], d);
    }
    if (seen) seen(count);
  }
  return d;
}

}  // namespace flatshard
