#include "checkpoint/tensor_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "checkpoint/float_values.h"

namespace flatshard {
namespace {

constexpr int64_t kPiece = int64_t{1} << 18;  // bytes
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

bool same_bits(const SafetensorsEntry& a, const SafetensorsEntry& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) return false;
  std::vector<std::byte> left(static_cast<size_t>(std::min(kPiece, a.bytes.size))), right = left;
  for (int64_t at = 0; at < a.bytes.size; at += kPiece) {
    const int64_t n = std::min(kPiece, a.bytes.size - at);
    a.bytes.read(at, n, left.data());
    b.bytes.read(at, n, right.data());
    if (std::memcmp(left.data(), right.data(), static_cast<size_t>(n)) != 0) return false;
  }
  return true;
}

TensorDifference difference(const SafetensorsEntry& a, const SafetensorsEntry& b,
                            const std::function<void(int64_t)>& seen) {
  TensorDifference d{.elements = element_count(a)};
  d.equal_bits = same_bits(a, b);
  d.comparable = a.shape == b.shape && float_dtype(a) && float_dtype(b);
  std::vector<float> left(static_cast<size_t>(std::min(kValueBlock, d.elements))), right = left;
  for (int64_t first = 0; first < d.elements; first += kValueBlock) {
    const int64_t count = std::min(kValueBlock, d.elements - first);
    if (d.comparable && !d.equal_bits) {
      read_floats(a, first, count, left.data());
      read_floats(b, first, count, right.data());
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) compare(left[i], right[i], d);
    }
    if (seen) seen(count);
  }
  return d;
}

}  // namespace flatshard
