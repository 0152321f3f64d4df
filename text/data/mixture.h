#pragma once
// The source of each sample of a run, as a function of the sample's position alone. At any position it takes
// as many divisions as the logarithm of the number of sources. The sources are the leaves of a balanced
// binary tree, and a node distributes its samples by rounding: of the first n, its left child has
//   floor((2 n w + W) / (2 W))      w, W: the weight of the left child, and of both
// So any stretch of as many samples as the weights sum up to has exactly the share of every source. A shorter
// stretch has it up to a few samples: the first n have the share of each source within half a sample for each
// level of the tree.

#include <cstdint>
#include <span>
#include <vector>

namespace flatshard {

class Mixture {
 public:
  // The weights must be positive; only their ratios matter.
  explicit Mixture(const std::vector<int64_t>& weights);

  struct Sample {
    size_t source;
    int64_t index;  // index among the samples of the source
  };
  Sample at(int64_t position) const;
  // The number of samples before this position from each source.
  std::vector<int64_t> counts_before(int64_t position) const;

  // Weights in lowest terms.
  int64_t weight(size_t source) const { return sums_[source + 1] - sums_[source]; }
  int64_t weight_of_all() const { return sums_.back(); }
  double share(size_t source) const {
    return static_cast<double>(weight(source)) / static_cast<double>(weight_of_all());
  }

 private:
  // The number of samples for [begin, middle) among the first `count` samples for [begin, end).
  int64_t left_of(size_t begin, size_t middle, size_t end, int64_t count) const;

  std::vector<int64_t> sums_;  // sum of the weights before each source, and of all
};

// Weights as whole numbers, for a Mixture: exact for up to nine decimals.
inline constexpr double kLeastWeight = 1e-6, kMostWeight = 1e6;
std::vector<int64_t> whole_weights(std::span<const double> weights);

}  // namespace flatshard
