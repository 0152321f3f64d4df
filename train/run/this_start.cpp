#include "train/run/this_start.h"

#include <chrono>
#include <cmath>
#include <sstream>

#include "runtime/gpu.h"
#include "runtime/parallel.h"
#include "runtime/processor.h"
#include "runtime/text.h"
#include "runtime/version.h"

namespace flatshard {
namespace {

// The device of this rank, as three lines: threads, GPU and name.
std::string device_lines(const RunSetup& setup) {
  const Device device = setup.device;
  return device.is_cuda() ? str(thread_count(), '\n', visible_gpus().at(static_cast<size_t>(device.index)),
                                '\n', gpu_name(device))
                          : str(thread_count(), "\n\n", processor_name());
}

RankDevice parse_device(const std::string& host, const std::string& lines) {
  RankDevice device;
  device.host = host;
  std::istringstream in(lines);
  in >> device.threads;
  in.ignore();
  std::getline(in, device.gpu);
  std::getline(in, device.name);
  return device;
}

double now() {
  const double seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return std::round(seconds * 1e3) / 1e3;
}

}  // namespace

StartRecord this_start(const RunSetup& setup, World& world, int64_t step, const std::string& command) {
  const std::vector<std::string> lines = world.all_gather_texts(device_lines(setup), "devices");
  std::vector<RankDevice> devices;
  for (size_t rank = 0; rank < lines.size(); ++rank)
    devices.push_back(parse_device(world.hosts()[rank], lines[rank]));
  return {.step = step,
          .time = now(),
          .version = version_and_revision(),
          .command = command,
          .ranks = world.size(),
          .hosts = hosts_of(devices)};
}

}  // namespace flatshard
