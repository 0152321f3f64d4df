#include "text/data/mixture.h"

#include <algorithm>
#include <cmath>

#include "tests/test.h"

using namespace flatshard;

namespace {

using Counts = std::vector<int64_t>;

// How many of the samples in [begin, begin + count) each source supplies, one by one.
Counts drawn(const Mixture& mixture, size_t sources, int64_t begin, int64_t count) {
  Counts counts(sources);
  for (int64_t n = begin; n < begin + count; ++n) ++counts[mixture.at(n).source];
  return counts;
}

Mixture of_weights(const std::vector<double>& weights) { return Mixture(whole_weights(weights)); }

}  // namespace

TEST_CASE("any 10,000 samples have exactly the share of every source") {
  const std::vector<std::pair<std::vector<double>, Counts>> cases{
      {{0.7, 0.3}, {7000, 3000}},
      {{0.7, 0.2, 0.1}, {7000, 2000, 1000}},
      {{3, 1}, {7500, 2500}},
      {{0.9999, 0.0001}, {9999, 1}},
      {{0.1234, 0.3766, 0.25, 0.25}, {1234, 3766, 2500, 2500}},
      {{1, 1, 1, 1, 1, 1, 1, 1}, Counts(8, 1250)},
      {{50, 12.5, 12.5, 25}, {5000, 1250, 1250, 2500}},
      {{1}, {10000}}};
  for (const auto& [weights, expected] : cases) {
    const Mixture mixture = of_weights(weights);
    for (const int64_t begin :
         {int64_t{0}, int64_t{1}, int64_t{4567}, int64_t{1'000'000'007}, int64_t{1} << 57})
      CHECK(drawn(mixture, weights.size(), begin, 10000) == expected);
  }
}

TEST_CASE("a mixture by sizes has as many samples of each source as it has sequences") {
  const Counts sizes{12'345, 7, 1'000, 333, 1};
  const Mixture mixture(sizes);
  for (const int64_t epoch : {0, 1, 5}) CHECK(drawn(mixture, 5, epoch * 13'686, 13'686) == sizes);
}

TEST_CASE("the samples of a source are numbered without a gap, and counted at any position") {
  const Mixture mixture = of_weights({0.613, 0.2, 0.001, 0.15, 0.036});
  Counts counts(5);
  for (int64_t n = 0; n < 20'000; ++n) {
    CHECK(mixture.counts_before(n) == counts);
    const Mixture::Sample sample = mixture.at(n);
    CHECK(sample.index == counts[sample.source]++);
  }
  const int64_t far = 1'000'000'000'000'003;
  counts = mixture.counts_before(far);
  for (int64_t n = far; n < far + 1000; ++n) {
    const Mixture::Sample sample = mixture.at(n);
    CHECK(sample.index == counts[sample.source]++);
  }
  CHECK(mixture.counts_before(far + 1000) == counts);
}

TEST_CASE("at any position every source is within half a sample of its share for each level of the tree") {
  for (const std::vector<double>& weights :
       {std::vector<double>{0.3, 0.7}, {0.05, 0.9, 0.05}, {0.31, 0.01, 0.5, 0.11, 0.003, 0.067}}) {
    const Mixture mixture = of_weights(weights);
    const double bound = std::ceil(std::log2(static_cast<double>(weights.size()))) / 2 + 1e-9;
    for (int64_t n = 0; n < 5000; ++n) {
      const Counts counts = mixture.counts_before(n);
      for (size_t i = 0; i < counts.size(); ++i)
        CHECK(std::abs(static_cast<double>(counts[i]) - mixture.share(i) * static_cast<double>(n)) <= bound);
    }
  }
}

TEST_CASE("only the ratios of weights matter") {
  const Mixture mixture = of_weights({0.6, 0.2, 0.2});
  CHECK(mixture.weight(0) == 3);
  CHECK(mixture.weight_of_all() == 5);
  CHECK(mixture.share(0) == 0.6);
}

TEST_CASE("weights at their bounds keep their ratio") {
  const Mixture mixture = of_weights({kLeastWeight, kMostWeight});
  CHECK(mixture.weight(0) == 1);
  CHECK(mixture.weight_of_all() == 1'000'000'000'001);
  CHECK(mixture.counts_before(int64_t{1} << 60)[0] == 1'152'922);  // 1'152'921.505
}
