#pragma once
// The clock and the statistics of the benchmark: seconds_of(work) is wall time by the host's steady clock; a
// Spread is what is left of many samples.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "runtime/check.h"

namespace flatshard::bench {

template <class Work>
double seconds_of(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The value below which a part of the samples lies, between two samples by a straight line.
inline double quantile(std::vector<double> samples, double part) {
  check(!samples.empty(), "the quantile of no samples");
  check(part >= 0 && part <= 1, "quantile ", part, " is outside [0, 1]");
  std::sort(samples.begin(), samples.end());
  const double at = part * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(at), above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (at - std::floor(at)) * (samples[above] - samples[below]);
}

struct Spread {
  double median = 0, p10 = 0, p90 = 0;
};

inline Spread spread(const std::vector<double>& samples) {
  return {.median = quantile(samples, 0.5), .p10 = quantile(samples, 0.1), .p90 = quantile(samples, 0.9)};
}

// How long this process's threads have stood ready without a processor so far, all together: other programs
// had it. 0 where the system does not say.
double waited_seconds();

}  // namespace flatshard::bench
