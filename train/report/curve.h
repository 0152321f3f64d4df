#pragma once
// A quantity over the steps of a run, thinned so that a page can hold it.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flatshard {

struct CurvePoint {
  int64_t step;
  double value;
};
using Curve = std::vector<CurvePoint>;

// At most `most` (at least 4) of the points, in their order: the first and the last, and of each of equally
// many points in between the lowest and the highest. What a screen would show of all points stays: the
// envelope, every spike and the extremes, each at its own step with its own value. Values must be finite.
Curve thinned(const Curve& curve, size_t most);

}  // namespace flatshard
