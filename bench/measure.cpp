#include "bench/measure.h"

#include <filesystem>
#include <fstream>

namespace flatshard::bench {

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

}  // namespace flatshard::bench
