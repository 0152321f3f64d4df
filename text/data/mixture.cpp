#include "text/data/mixture.h"

#include <cmath>
#include <numeric>

namespace flatshard {

Mixture::Mixture(const std::vector<int64_t>& weights) : sums_{0} {
  int64_t divisor = 0;
  for (const int64_t weight : weights) divisor = std::gcd(divisor, weight);
  for (const int64_t weight : weights) sums_.push_back(sums_.back() + weight / divisor);
}

int64_t Mixture::left_of(size_t begin, size_t middle, size_t end, int64_t count) const {
  using Wide = unsigned __int128;  // holds a product of two factors below 2^62
  const auto left = static_cast<Wide>(sums_[middle] - sums_[begin]),
             both = static_cast<Wide>(sums_[end] - sums_[begin]);
  return static_cast<int64_t>((2 * static_cast<Wide>(count) * left + both) / (2 * both));
}

Mixture::Sample Mixture::at(int64_t position) const {
  size_t begin = 0, end = sums_.size() - 1;
  while (end - begin > 1) {
    const size_t middle = begin + (end - begin) / 2;
    const int64_t before = left_of(begin, middle, end, position);
    if (left_of(begin, middle, end, position + 1) > before) {
      position = before;
      end = middle;
    } else {
      position -= before;
      begin = middle;
    }
  }
  return {begin, position};
}

std::vector<int64_t> Mixture::counts_before(int64_t position) const {
  std::vector<int64_t> counts(sums_.size() - 1);
  const auto divide = [&](const auto& self, size_t begin, size_t end, int64_t count) -> void {
    if (end - begin == 1) {
      counts[begin] = count;
      return;
    }
    const size_t middle = begin + (end - begin) / 2;
    const int64_t left = left_of(begin, middle, end, count);
    self(self, begin, middle, left);
    self(self, middle, end, count - left);
  };
  divide(divide, 0, counts.size(), position);
  return counts;
}

std::vector<int64_t> whole_weights(std::span<const double> weights) {
  std::vector<int64_t> whole;
  for (const double weight : weights) whole.push_back(std::llround(weight * 1e9));
  return whole;
}

}  // namespace flatshard
