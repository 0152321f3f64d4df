#include "checkpoint/tensor_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "checkpoint/float_values.h"

namespace flatshard {
namespace {

constexpr int64_t kPiece = int64_t{1} << 18;  // bytes per read
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

TensorDifference difference(int64_t elements, const ReadElements& a, const ReadElements& b,
                            const std::function<void(int64_t)>& seen) {
  TensorDifference d{.comparable = true, .equal_bits = true, .elements = elements};
  std::vector<float> left(static_cast<size_t>(std::min(kValueBlock, elements))), right = left;
  for (int64_t first = 0; first < elements; first += kValueBlock) {
    const auto count = static_cast<size_t>(std::min(kValueBlock, elements - first));
    a(first, static_cast<int64_t>(count), left.data());
    b(first, static_cast<int64_t>(count), right.data());
    d.equal_bits = d.equal_bits && std::memcmp(left.data(), right.data(), count * sizeof(float)) == 0;
    for (size_t i = 0; i < count; ++i) compare(left[i], right[i], d);
    if (seen) seen(static_cast<int64_t>(count));
  }
  return d;
}

TensorDifference difference(const SafetensorsEntry& a, const SafetensorsEntry& b,
                            const std::function<void(int64_t)>& seen) {
  TensorDifference d{.elements = element_count(a)};
  d.equal_bits = same_bits(a, b);
  d.comparable = a.shape == b.shape && float_dtype(a) && float_dtype(b);
  if (d.equal_bits || !d.comparable) {
    if (seen) seen(d.elements);
    return d;
  }
  const auto reader = [](const SafetensorsEntry& entry) {
    return [&entry](int64_t first, int64_t count, float* to) { read_floats(entry, first, count, to); };
  };
  d = difference(d.elements, reader(a), reader(b), seen);
  d.equal_bits = false;  // the dtypes may differ
  return d;
}

}  // namespace flatshard
