#include "comm/clock.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace flatshard {
namespace {

constexpr int kExchanges = 64;

// 52 bits of the kernel's boot id, which all processes on a host share and a double represents exactly; 0 if
// there is none.
double running_kernel() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");  // e.g. 0f8fad5b-d9cb-469f-a165-70867728950e
  std::string id;
  file >> id;
  std::erase(id, '-');
  return static_cast<double>(std::strtoull(id.substr(0, 13).c_str(), nullptr, 16));
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ClockOffset clock_offset(World& world) {
  const double mine = running_kernel();
  const std::vector<double> kernels = world.all_gather({&mine, 1}, "hosts");
  const bool same =
      std::all_of(kernels.begin(), kernels.end(), [&](double k) { return k != 0 && k == mine; });
  if (same) return {};
  const ClockOffset measured = measure_clock_offset(world, steady_seconds);
  return mine != 0 && mine == kernels.front() ? ClockOffset{} : measured;
}

ClockOffset measure_clock_offset(World& world, const std::function<double()>& now) {
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  for (int i = 0; i < kExchanges; ++i) {
    world.barrier("clocks");  // all ranks enter at nearly the same time
    const double entry = now();
    const double entry_of_first = world.all_gather({&entry, 1}, "clocks").front();
    const double leave = now();
    const double leave_of_first = world.all_gather({&leave, 1}, "clocks").front();
    least = std::max(least, entry_of_first - leave);
    most = std::min(most, leave_of_first - entry);
  }
  if (world.rank() == 0) return {};
  return {.seconds = (least + most) / 2, .error = (most - least) / 2};
}

}  // namespace flatshard
