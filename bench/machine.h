#pragma once
// The machine of a measurement: processor, caches, compiler, commit.

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/device.h"

namespace flatshard::bench {

struct Machine {
  std::string device;     // "cpu" or "cuda:0"
  std::string processor;  // name of the host processor
  int threads = 0;
  int64_t cache_bytes = 0;  // last-level cache of the device
  std::string compiler, build_type;
  std::string commit;  // commit of the source tree, with "-dirty" if files are modified; empty if unknown
};

Machine this_machine(Device device);

// The total size of the last-level caches of all processors under a folder like /sys/devices/system/cpu. 32
// MiB if unknown.
int64_t last_level_cache_bytes(const std::filesystem::path& processors);

// Parses "32768K", "1M" or "512" to bytes. Throws an Error for anything else.
int64_t parse_cache_size(const std::string& text);

}  // namespace flatshard::bench
