#pragma once
// What a measurement was taken on: the processor and its caches, the compiler, the commit.

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/device.h"

namespace flatshard::bench {

struct Machine {
  std::string device;     // "cpu" or "cuda:0"
  std::string processor;  // the host's, as it calls itself
  int threads = 0;
  int64_t cache_bytes = 0;  // of the device's last level
  std::string compiler, build_type;
  std::string
      commit;  // of the source tree, "-dirty" behind it where files were changed; empty where not known
};

Machine this_machine(Device device);

// The last-level caches of all processors under a folder like /sys/devices/system/cpu, together; 32 MiB where
// it does not say.
int64_t last_level_cache_bytes(const std::filesystem::path& processors);

// "32768K", "1M" or "512" as bytes; an Error for anything else.
int64_t parse_cache_size(const std::string& text);

}  // namespace flatshard::bench
