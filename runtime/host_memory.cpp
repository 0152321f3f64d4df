#include "runtime/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

int64_t test_limit = INT64_MAX;

// The number that follows a name in a file of lines "name number ...".
std::optional<int64_t> number_of(const std::string& name, const fs::path& file) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first >> number && first == name) return number;
  }
  return std::nullopt;
}

// The content of a file that holds one number; cgroup v2 writes "max" for no limit.
std::optional<int64_t> number_in(const fs::path& file) {
  std::ifstream in(file);
  int64_t number = 0;
  if (in >> number) return number;
  return std::nullopt;
}

// The files of one version of the memory cgroup interface.
struct CgroupFiles {
  const char *root, *limit, *usage, *reclaimable;
};
constexpr CgroupFiles kVersion1{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                "total_inactive_file"};
constexpr CgroupFiles kVersion2{"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

// The bytes that one cgroup has left. The inactive page cache counts as free because the kernel reclaims it.
int64_t left_by(const fs::path& group, const CgroupFiles& files) {
  const auto limit = number_in(group / files.limit), usage = number_in(group / files.usage);
  if (!limit || !usage) return INT64_MAX;
  return std::max<int64_t>(0,
                           *limit - *usage + number_of(files.reclaimable, group / "memory.stat").value_or(0));
}

// The bytes left by the cgroup at `path` and all of its ancestors. Inside a container the path may exist only
// on the host; the root is then the container's own cgroup.
int64_t left_around(const CgroupFiles& files, const fs::path& path) {
  int64_t left = left_by(files.root, files);
  fs::path group = files.root;
  for (const fs::path& part : path.relative_path()) left = std::min(left, left_by(group /= part, files));
  return left;
}

// Lines of /proc/self/cgroup are number:controllers:path; version 2 lists no controllers.
int64_t left_by_cgroups() {
  int64_t left = INT64_MAX;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      path = line.substr(second + 1);
    if (controllers == "memory") left = std::min(left, left_around(kVersion1, path));
    if (controllers.empty()) left = std::min(left, left_around(kVersion2, path));
  }
  return left;
}

}  // namespace

int64_t available_host_bytes() {
  const auto kib = number_of("MemAvailable:", "/proc/meminfo");
  const int64_t swap = number_of("SwapFree:", "/proc/meminfo").value_or(0);
  const int64_t on_machine = kib ? 1024 * (*kib + swap) : INT64_MAX;
  return std::min({test_limit, on_machine, left_by_cgroups()});
}

void require_address_space(int64_t bytes, const char* what) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur > INT64_MAX) return;
  const auto pages = number_in("/proc/self/statm");  // its first number is the size of the address space
  const auto most = static_cast<int64_t>(limit.rlim_cur);
  const int64_t left = pages ? std::max<int64_t>(0, most - *pages * sysconf(_SC_PAGESIZE)) : most;
  check(bytes <= left, "out of host memory: ", what, " need ", human_bytes(bytes),
        " of address space, but the limit of ", human_bytes(most), " for this process leaves ",
        human_bytes(left), ": raise it (ulimit -v)");
}

ProcessMemory process_memory() {
  const auto bytes = [](const char* name, const char* file) {  // the files give KiB
    return 1024 * number_of(name, file).value_or(0);
  };
  return {.resident = bytes("VmRSS:", "/proc/self/status"),
          .peak = bytes("VmHWM:", "/proc/self/status"),
          .machine = bytes("MemTotal:", "/proc/meminfo")};
}

bool reset_peak_memory() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;
  return out.good();
}

ScopedHostMemory::ScopedHostMemory(int64_t limit) : before_(test_limit) { test_limit = limit; }
ScopedHostMemory::~ScopedHostMemory() { test_limit = before_; }

}  // namespace flatshard
