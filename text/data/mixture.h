#pragma once
// Which of several sources supplies each sample of a run: a function of the sample's position alone, which
// takes as many divisions as the logarithm of the number of sources, at any position. The sources are the
// leaves of a balanced binary tree, and a node distributes its samples by rounding: of the first n, its left
// child has
//   floor((2 n w + W) / (2 W))      w, W: the weight of the left child, and of both
// So any stretch of as many samples as the weights sum up to has exactly the share of every source, and any
// shorter one all but a few samples: the first n have the share of each source within half a sample for
// each level of the tree.

#include <cstdint>
#include <span>
#include <vector>

namespace flatshard {

class Mixture {
 public:
  // Positive weights, of which only the ratios matter.
  explicit Mixture(const std::vector<int64_t>& weights);

  struct Sample {
    size_t source;
    int64_t index;  // among the samples of the source
  };
  Sample at(int64_t position) const;
  // How many of the samples before this position each source supplies.
  std::vector<int64_t> counts_before(int64_t position) const;

  // In lowest terms.
  int64_t weight(size_t source) const { return sums_[source + 1] - sums_[source]; }
  int64_t weight_of_all() const { return sums_.back(); }
  double share(size_t source) const {
    return static_cast<double>(weight(source)) / static_cast<double>(weight_of_all());
  }

 private:
  // Of the first `count` samples of the sources in [begin, end), those of [begin, middle).
  int64_t left_of(size_t begin, size_t middle, size_t end, int64_t count) const;

  std::vector<int64_t> sums_;  // of the weights before each source, and of all
};

// Weights as whole numbers, for a Mixture: exact for up to nine decimals.
inline constexpr double kLeastWeight = 1e-6, kMostWeight = 1e6;
std::vector<int64_t> whole_weights(std::span<const double> weights);

}  // namespace flatshard
