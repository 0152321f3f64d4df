#pragma once
// The clock and the statistics of the benchmark. seconds_of(work) measures wall time; a Spread summarizes
// samples.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <vector>

#include "runtime/check.h"

namespace flatshard::bench {

template <class Work>
double seconds_of(Work&& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The value below which a fraction `part` of the samples lies, by linear interpolation.
inline double quantile(std::vector<double> samples, double part) {
  check(!samples.empty(), "quantile of an empty set of samples");
  check(part >= 0 && part <= 1, "quantile is ", part, ", must be in [0, 1]");
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

// The seconds of each call. Makes at least three calls, which last at least `seconds` in total.
std::vector<double> samples_of(double seconds, const std::function<void()>& work);

// The total time that the threads of this process have waited while other programs used the processors. 0 if
// the system does not report it.
double waited_seconds();
// The processor time that the threads of this process have used.
double processor_seconds();

}  // namespace flatshard::bench
