#include "bench/measure.h"

#include <ctime>
#include <filesystem>
#include <fstream>

namespace flatshard::bench {

std::vector<double> samples_of(double seconds, const std::function<void()>& work) {
  constexpr size_t kLeast = 3;
  std::vector<double> samples;
  for (double total = 0; samples.size() < kLeast || total < seconds; total += samples.back())
    samples.push_back(seconds_of(work));
  return samples;
}

double waited_seconds() {
  double nanoseconds = 0;
  std::error_code absent;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", absent)) {
    std::ifstream in(thread.path() / "schedstat");  // nanoseconds run, nanoseconds waited, time slices
    double ran = 0, waited = 0;
    if (in >> ran >> waited) nanoseconds += waited;
  }
  return nanoseconds * 1e-9;
}

double processor_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace flatshard::bench
