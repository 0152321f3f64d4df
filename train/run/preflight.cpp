#include "train/run/preflight.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "runtime/gpu.h"
#include "runtime/network.h"
#include "runtime/parallel.h"
#include "runtime/processor.h"
#include "runtime/text.h"
#include "runtime/version.h"
#include "train/measure/bandwidth.h"

namespace flatshard {
namespace {

constexpr int64_t kSmallest = 1, kLarge = 4 << 20;  // bytes of the two all-reduces

std::string device_of(const RunSetup& setup) {
  return setup.device.is_cuda() ? str(setup.device) : counted(thread_count(), "thread");
}

std::vector<RankPlace> gather_places(const RunSetup& setup, World& world) {
  const std::vector<std::string> devices = world.all_gather_texts(device_of(setup), "devices"),
                                 networks = world.all_gather_texts(network_interfaces(), "interfaces");
  std::vector<RankPlace> places;
  for (size_t rank = 0; rank < devices.size(); ++rank)
    places.push_back({world.hosts()[rank], devices[rank], networks[rank]});
  return places;
}

// "cuda:0, cuda:1", "4 x 2 threads"
std::string devices_of(const std::vector<RankPlace>& places, const std::vector<int>& ranks) {
  std::vector<std::pair<std::string, int>> counts;
  for (const int rank : ranks) {
    const std::string& device = places[static_cast<size_t>(rank)].device;
    if (counts.empty() || counts.back().first != device) counts.emplace_back(device, 0);
    ++counts.back().second;
  }
  std::string text;
  for (const auto& [device, count] : counts)
    text += str(text.empty() ? "" : ", ", count > 1 ? str(count, " x ") : "", device);
  return text;
}

// The device of this rank, as three lines: threads, GPU and name.
std::string device_lines(Device device) {
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

std::string host_table(const std::vector<RankPlace>& places) {
  std::vector<std::string> hosts;  // hosts in the order of their first ranks
  for (const RankPlace& place : places)
    if (std::find(hosts.begin(), hosts.end(), place.host) == hosts.end()) hosts.push_back(place.host);
  using Row = std::array<std::string, 4>;
  std::vector<Row> rows{{"host", "ranks", "devices", "network interfaces"}};
  for (const std::string& host : hosts) {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < places.size(); ++rank)
      if (places[rank].host == host) ranks.push_back(static_cast<int>(rank));
    rows.push_back({host, ranges(ranks), devices_of(places, ranks),
                    places[static_cast<size_t>(ranks.front())].interfaces});
  }
  std::array<size_t, 3> widths{};
  for (const Row& row : rows)
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::ostringstream out;
  for (const Row& row : rows) {
    out << std::left << std::setw(10) << (&row == &rows.front() ? "hosts" : "");
    for (size_t i = 0; i < widths.size(); ++i) out << std::setw(static_cast<int>(widths[i]) + 2) << row[i];
    out << row.back() << '\n';
  }
  return std::move(out).str();
}

std::string preflight(const RunSetup& setup, World& world, bool always) {
  const std::vector<std::string>& hosts = world.hosts();
  const bool one_host =
      std::all_of(hosts.begin(), hosts.end(), [&](const std::string& h) { return h == hosts.front(); });
  if (one_host && !always) return "";
  std::string text = host_table(gather_places(setup, world));
  if (world.size() == 1) return text;
  const double least = all_reduce_seconds(setup, world, kSmallest),
               large = all_reduce_seconds(setup, world, kLarge);
  return text + str("          an all-reduce takes ", human_seconds(least), " of one value for each rank, ",
                    human_seconds(large), " of ", human_bytes(kLarge), '\n');
}

StartRecord this_start(Device device, World& world, int64_t step, const std::string& command) {
  const std::vector<std::string> lines = world.all_gather_texts(device_lines(device), "devices");
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
