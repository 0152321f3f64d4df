#include "runtime/check.h"
#include "train/report/run_curves.h"

namespace flatshard {

ThinnedCurve::ThinnedCurve(size_t most) : most_(most) {
  check(most >= 8, "a curve thinned to ", most, " points, must be at least 8");
}

void ThinnedCurve::absorb(Group& group, const Group& next) {
  const bool lower = next.low.value<group.low.value, higher = next.high.value> group.high.value;
  if (lower) group.low = next.low;
  if (higher) group.high = next.high;
  if (lower || higher) group.low_is_first = lower && higher ? next.low_is_first : higher;
  group.count += next.count;
  group.sum += next.sum;
  group.steps += next.steps;
}

// Makes groups of one point four times as long, and other groups twice as long; this halves the points.
void ThinnedCurve::merge_groups() {
  const size_t factor = length_ == 1 ? 4 : 2;
  size_t kept = 0;
  for (size_t i = 0; i < groups_.size(); ++i)
    if (i % factor == 0)
      groups_[kept++] = groups_[i];
    else
      absorb(groups_[kept - 1], groups_[i]);
  groups_.resize(kept);
  length_ *= factor;
}

void ThinnedCurve::add(int64_t step, double value) {
  const CurvePoint point{step, value};
  if (groups_.empty()) first_ = point;
  last_ = point;
  const Group one{.low = point, .high = point, .low_is_first = true, .count = 1, .sum = value, .steps = step};
  const auto last_is_full = [&] { return groups_.empty() || groups_.back().count == length_; };
  const size_t most_groups = length_ == 1 ? most_ : most_ / 2 - 1;
  if (last_is_full() && groups_.size() == most_groups) merge_groups();
  if (last_is_full())
    groups_.push_back(one);
  else
    absorb(groups_.back(), one);
}

Curve ThinnedCurve::means() const {
  Curve means;
  for (const Group& g : groups_)
    means.push_back({g.steps / static_cast<int64_t>(g.count), g.sum / static_cast<double>(g.count)});
  return means;
}

Curve ThinnedCurve::points() const {
  Curve points;
  if (groups_.empty()) return points;
  points.push_back(first_);
  const auto append = [&](const CurvePoint& p) {
    const CurvePoint& last = points.back();
    if (p.step != last.step || p.value != last.value) points.push_back(p);
  };
  for (const Group& g : groups_) {
    append(g.low_is_first ? g.low : g.high);
    append(g.low_is_first ? g.high : g.low);
  }
  append(last_);
  return points;
}

}  // namespace flatshard
