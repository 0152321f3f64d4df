#include "kernels/ordered_sum.h"

#include <algorithm>
#include <vector>

#include "runtime/rng.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

constexpr int64_t kCount = 53;
using Lane = std::vector<float>;

// Lanes of very different magnitudes, so that another tree gives other bits.
std::vector<Lane> make_lanes(int count) {
  std::vector<Lane> lanes(static_cast<size_t>(count), Lane(kCount));
  const RandomStream random(1, "lanes");
  for (int lane = 0; lane < count; ++lane)
    for (int i = 0; i < kCount; ++i)
      lanes[lane][i] = random.normal(lane * kCount + i) * (lane % 3 == 0 ? 100.0f : 1.0f);
  return lanes;
}

void add_lanes(const std::vector<Lane>& lanes, Lane& y, bool accumulate) {
  Lane flat;
  for (const Lane& lane : lanes) flat.insert(flat.end(), lane.begin(), lane.end());
  y.resize(kCount);
  StreamSet streams(Device::cpu());
  ordered_sum(streams.add("compute"),
              {.y = tensor_of(y.data(), {kCount}),
               .lanes = tensor_of(flat.data(), {static_cast<int64_t>(lanes.size()), kCount}),
               .accumulate = accumulate});
}

Lane sum_of(const std::vector<Lane>& lanes) {
  Lane y;
  add_lanes(lanes, y, false);
  return y;
}

// The definition: adds pairs of neighbors at each level, and carries an odd last element up.
Lane tree(std::vector<Lane> level) {
  while (level.size() > 1) {
    std::vector<Lane> next;
    for (size_t k = 0; k + 1 < level.size(); k += 2) {
      next.push_back(level[k]);
      for (int i = 0; i < kCount; ++i) next.back()[i] = level[k][i] + level[k + 1][i];
    }
    if (level.size() % 2) next.push_back(level.back());
    level = next;
  }
  return level[0];
}

// Adds the lanes in groups of `ranks`, and combines partial sums like a binary counter (see ordered_sum.h).
Lane counted(const std::vector<Lane>& lanes, size_t ranks) {
  std::vector<Lane> waiting;
  size_t step = 0;
  for (size_t begin = 0; begin < lanes.size(); begin += ranks, ++step) {
    const size_t end = std::min(lanes.size(), begin + ranks);
    Lane sum = sum_of({lanes.begin() + begin, lanes.begin() + end});
    for (size_t carry = step; carry & 1; carry >>= 1) {
      add_lanes({sum}, waiting.back(), true);
      sum = waiting.back();
      waiting.pop_back();
    }
    waiting.push_back(sum);
  }
  for (; waiting.size() > 1; waiting.pop_back())
    add_lanes({waiting.back()}, waiting[waiting.size() - 2], true);
  return waiting[0];
}

}  // namespace

TEST_CASE("the ordered sum matches the tree in PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("ordered_sum")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("ordered_sum_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("the ordered sum is the tree of pairs, for any number of lanes") {
  for (int count = 1; count <= 33; ++count) {
    CAPTURE(count);
    const std::vector<Lane> lanes = make_lanes(count);
    CHECK(sum_of(lanes) == tree(lanes));
  }
}

TEST_CASE("lanes give the same bits summed at once, one by one or in groups") {
  for (const int count : {4, 6, 8, 12, 16}) {
    const std::vector<Lane> lanes = make_lanes(count);
    for (const size_t ranks : {1, 2, 4, 8, 16}) {
      CAPTURE(count);
      CAPTURE(ranks);
      CHECK(counted(lanes, ranks) == sum_of(lanes));
    }
  }
}

TEST_CASE("these lanes give other bits in another order, so the tests above detect a wrong order") {
  std::vector<Lane> lanes = make_lanes(8);
  const Lane sum = sum_of(lanes);
  std::swap(lanes[1], lanes[2]);
  CHECK(sum_of(lanes) != sum);
}

TEST_CASE("the ordered sum refuses an output that is not one lane of f32") {
  float y[3] = {}, lanes[8] = {};
  StreamSet streams(Device::cpu());
  const std::string error = test::error_of([&] {
    ordered_sum(streams.add("compute"), {.y = tensor_of(y, {3}), .lanes = tensor_of(lanes, {2, 4})});
  });
  CHECK(error == "ordered_sum: y is f32 (3), must be f32 with the elements of one lane of (2, 4)");
}
