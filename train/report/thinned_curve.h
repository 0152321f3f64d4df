#pragma once
// A curve in bounded memory, however many points it is given. It preserves the envelope: every spike and the
// extremes, with their exact steps and values.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flatshard {

struct CurvePoint {
  int64_t step;
  double value;
};
using Curve = std::vector<CurvePoint>;

class ThinnedCurve {
 public:
  // Two points, lowest and highest, per pixel of the widest chart.
  static constexpr size_t kMostPoints = 2000;

  explicit ThinnedCurve(size_t most = kMostPoints);  // `most`: at least 8

  // Values must be finite, and steps must not decrease.
  void add(int64_t step, double value);
  bool empty() const { return groups_.empty(); }
  // All points if there are at most `most`; otherwise at most that many: the first, the last, and the lowest
  // and highest of each of equally large groups in between, in order.
  Curve points() const;
  bool omits_points() const { return length_ > 1; }
  // A point for each group: the mean of its steps, rounded, and of its values. All points if none are
  // omitted.
  Curve means() const;

 private:
  struct Group {
    CurvePoint low, high;
    bool low_is_first;
    size_t count;
    double sum;     // sum of the values
    int64_t steps;  // sum of the steps
  };
  static void absorb(Group& group, const Group& next);
  void merge_groups();

  size_t most_, length_ = 1;  // points per group
  std::vector<Group> groups_;
  CurvePoint first_{}, last_{};
};

}  // namespace flatshard
