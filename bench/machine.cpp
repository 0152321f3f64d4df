#include "bench/machine.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>

#include "build_config.h"
#include "runtime/check.h"
#include "runtime/parallel.h"
#include "runtime/processor.h"
#include "source_dir.h"

namespace flatshard::bench {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUsualCacheBytes = int64_t{32} << 20;
constexpr int64_t kCudaCacheBytes = int64_t{64}
                                    << 20;  // an H200 has 50 MB of L2, the largest that is planned for

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The commit: "5a6d644" or "5a6d644-dirty". Empty without git or a repository.
std::string commit_of(const std::string& folder) {
  const std::string command = "git -C '" + folder + "' describe --always --dirty --match= 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  char text[80] = "";
  if (!pipe || !std::fgets(text, sizeof text, pipe.get())) return "";
  std::string commit = text;
  commit.erase(commit.find_last_not_of('\n') + 1);
  return commit;
}

}  // namespace

int64_t parse_cache_size(const std::string& text) {
  size_t end = 0;
  int64_t size = 0;
  if (!text.empty() && std::isdigit(static_cast<unsigned char>(text[0]))) size = std::stoll(text, &end);
  const std::string unit = text.substr(end);
  check(end > 0 && (unit.empty() || unit == "K" || unit == "M"), "cache size is \"", text,
        "\", must be a number, optionally followed by K or M");
  return unit == "K" ? size << 10 : unit == "M" ? size << 20 : size;
}

int64_t last_level_cache_bytes(const fs::path& processors) {
  int last_level = 0;
  std::map<std::string, int64_t> caches;  // caches of the highest level, by the processors that share them
  std::error_code absent;
  for (const auto& processor : fs::directory_iterator(processors, absent)) {
    for (const auto& entry : fs::directory_iterator(processor.path() / "cache", absent)) {
      const std::string level = first_line(entry.path() / "level"), size = first_line(entry.path() / "size");
      if (level.empty() || size.empty()) continue;
      if (std::stoi(level) > last_level) {
        last_level = std::stoi(level);
        caches.clear();
      }
      if (std::stoi(level) == last_level)
        caches[first_line(entry.path() / "shared_cpu_list")] = parse_cache_size(size);
    }
  }
  int64_t total = 0;
  for (const auto& [sharers, bytes] : caches) total += bytes;
  return total > 0 ? total : kUsualCacheBytes;
}

Machine this_machine(Device device) {
  return {
      .device = str(device),
      .processor = processor_name(),
      .threads = thread_count(),
      .cache_bytes = device.is_cuda() ? kCudaCacheBytes : last_level_cache_bytes("/sys/devices/system/cpu"),
      .compiler = kCompiler,
      .build_type = kBuildType,
      .commit = commit_of(kSourceDir)};
}

}  // namespace flatshard::bench
