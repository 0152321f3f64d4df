#include "train/report/curve.h"

#include <algorithm>

#include "runtime/check.h"

namespace flatshard {

Curve thinned(const Curve& curve, size_t most) {
  check(most >= 4, "a curve thinned to ", most, " points, must be at least 4");
  if (curve.size() <= most) return curve;
  const size_t inner = curve.size() - 2, groups = (most - 2) / 2;
  Curve kept{curve.front()};
  for (size_t g = 0; g < groups; ++g) {
    const auto begin = curve.begin() + 1 + static_cast<std::ptrdiff_t>(g * inner / groups),
               end = curve.begin() + 1 + static_cast<std::ptrdiff_t>((g + 1) * inner / groups);
    const auto [low, high] = std::minmax_element(
        begin, end, [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; });
    kept.push_back(*std::min(low, high));
    if (low != high && high->value > low->value) kept.push_back(*std::max(low, high));
  }
  kept.push_back(curve.back());
  return kept;
}

}  // namespace flatshard
