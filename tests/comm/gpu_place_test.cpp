#include "comm/gpu_place.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

using Visible = std::vector<std::vector<std::string>>;

// The number of each rank's GPU among those that it sees, and who shares one.
std::pair<std::vector<int>, std::string> places(const Visible& visible) {
  std::vector<int> indices;
  std::string shared;
  for (int rank = 0; rank < std::ssize(visible); ++rank) {
    const GpuPlace place = place_on_gpu(visible, rank);
    indices.push_back(place.index);
    if (rank > 0) CHECK(place.shared == shared);
    shared = place.shared;
  }
  return {indices, shared};
}

}  // namespace

TEST_CASE("ranks that each see a GPU of their own do not share, though all call it number 0") {
  CHECK(places({{"A"}, {"B"}, {"C"}, {"D"}}) == std::pair(std::vector{0, 0, 0, 0}, std::string()));
}

TEST_CASE("ranks that see all GPUs of their host take them in turn, on any number of hosts") {
  const std::vector<std::string> one{"A", "B"}, other{"C", "D"};
  CHECK(places({one, one, other, other}) == std::pair(std::vector{0, 1, 0, 1}, std::string()));
  CHECK(places({one, other, one, other}) == std::pair(std::vector{0, 0, 1, 1}, std::string()));
}

TEST_CASE("ranks that see the same GPUs in another order take different ones") {
  CHECK(places({{"A", "B"}, {"B", "A"}}).second.empty());
  CHECK(places({{"A", "B"}, {"A", "B"}, {"C", "A", "B"}}) == std::pair(std::vector{0, 1, 0}, std::string()));
}

TEST_CASE("two ranks on one GPU are recognized by its identity, and the GPUs are shared evenly") {
  CHECK(places({{"A"}, {"B"}, {"A"}}) ==
        std::pair(std::vector{0, 0, 0}, std::string("ranks 0 and 2 both use A")));
  const std::vector<std::string> both{"A", "B"};
  CHECK(places({both, both, both, both}) ==
        std::pair(std::vector{0, 1, 0, 1}, std::string("ranks 0 and 2 both use A")));
}

TEST_CASE("ranks that see no GPU share none") {
  CHECK(places({{}, {}, {"A"}}) == std::pair(std::vector{0, 0, 0}, std::string()));
}
