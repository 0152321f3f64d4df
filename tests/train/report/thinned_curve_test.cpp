#include <algorithm>
#include <cmath>

#include "tests/test.h"
#include "train/report/run_curves.h"

using namespace flatshard;

namespace {

Curve some_curve(size_t count) {
  Curve curve;
  for (size_t i = 0; i < count; ++i)
    curve.push_back({static_cast<int64_t>(3 * i), std::sin(static_cast<double>(i * i % 1009))});
  return curve;
}

Curve thinned(const Curve& curve, size_t most) {
  ThinnedCurve thin(most);
  for (const CurvePoint& p : curve) thin.add(p.step, p.value);
  return thin.points();
}

bool same(const CurvePoint& a, const CurvePoint& b) { return a.step == b.step && a.value == b.value; }

}  // namespace

TEST_CASE("a curve is thinned to its bound and keeps its first and last point and its extremes") {
  for (const size_t count : {5, 12, 100, 1001, 20'000})
    for (const size_t most : {8, 9, 20, 333}) {
      Curve curve = some_curve(count);
      curve[count / 2].value = 1e9, curve[count / 3].value = -1e9;
      const Curve thin = thinned(curve, most);
      CAPTURE(count);
      CAPTURE(most);
      CHECK(thin.size() <= most);
      CHECK(thin.size() >= std::min(count, most / 4));
      CHECK(same(thin.front(), curve.front()));
      CHECK(same(thin.back(), curve.back()));
      for (const double extreme : {1e9, -1e9})
        CHECK(std::any_of(thin.begin(), thin.end(), [&](const CurvePoint& p) { return p.value == extreme; }));
    }
}

TEST_CASE("the points of a thinned curve are points of the curve, in order") {
  const Curve curve = some_curve(5000), thin = thinned(curve, 100);
  auto at = curve.begin();
  for (const CurvePoint& p : thin) {
    at = std::find_if(at, curve.end(), [&](const CurvePoint& q) { return same(p, q); });
    REQUIRE(at != curve.end());
    ++at;
  }
}

TEST_CASE("the means of a thinned curve have the mean of all its points, and no spike decides one") {
  Curve curve = some_curve(4096);
  curve[1000].value = 1e6;
  ThinnedCurve thin(64);
  double sum = 0, of_means = 0;
  for (const CurvePoint& p : curve) thin.add(p.step, p.value), sum += p.value;
  const Curve means = thin.means();
  for (const CurvePoint& p : means) of_means += p.value;
  REQUIRE(4096 % means.size() == 0);  // all groups are full
  CHECK(of_means / static_cast<double>(means.size()) == doctest::Approx(sum / 4096));
  const double group = 4096 / static_cast<double>(means.size());
  for (const CurvePoint& p : means) CHECK(p.value < 2e6 / group);
  CHECK(means.front().step == (curve.front().step + curve[static_cast<size_t>(group) - 1].step) / 2);
}

TEST_CASE("a curve within its bound is unchanged, and a constant one needs few points") {
  const Curve curve = some_curve(50);
  const Curve thin = thinned(curve, 50);
  CHECK(std::equal(thin.begin(), thin.end(), curve.begin(), curve.end(), same));
  CHECK(thinned({}, 8).empty());
  Curve constant;
  for (int64_t step = 1; step <= 1000; ++step) constant.push_back({step, 7});
  CHECK(thinned(constant, 100).size() < 60);
  CHECK(test::error_of([] { ThinnedCurve small(7); }) == "a curve thinned to 7 points, must be at least 8");
}

TEST_CASE("the median is exact for short runs and close for long ones, and ignores non-finite values") {
  SampledMedian few, many;
  CHECK_FALSE(few.value());
  for (const double v : {5.0, 1.0, HUGE_VAL, 4.0, std::nan(""), 2.0, 3.0}) few.add(v);
  CHECK(*few.value() == 3);
  for (int i = 0; i < 100'000; ++i) many.add(i * 7919 % 100'000);
  CHECK(std::abs(*many.value() - 50'000) < 1000);
}
