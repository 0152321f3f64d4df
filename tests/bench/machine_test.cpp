// How the benchmark describes the machine.

#include "bench/machine.h"

#include <fstream>
#include <unistd.h>

#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
namespace fs = std::filesystem;

namespace {

// A temporary folder like /sys/devices/system/cpu.
struct Processors {
  Processors() : root(fs::temp_directory_path() / str("flatshard-processors-", getpid())) {}
  ~Processors() { fs::remove_all(root); }

  void add_cache(int processor, int level, const char* size, const char* sharers) const {
    const fs::path folder = root / str("cpu", processor) / "cache" / str("index", level);
    fs::create_directories(folder);
    std::ofstream(folder / "level") << level << '\n';
    std::ofstream(folder / "size") << size << '\n';
    std::ofstream(folder / "shared_cpu_list") << sharers << '\n';
  }

  fs::path root;
};

}  // namespace

TEST_CASE("a cache size is parsed with its unit, and anything else is refused") {
  CHECK(parse_cache_size("32768K") == int64_t{32} << 20);
  CHECK(parse_cache_size("2M") == int64_t{2} << 20);
  CHECK(parse_cache_size("512") == 512);
  for (const char* bad : {"", "K", "-1K", "32 K", "1G2", "much"}) {
    CAPTURE(bad);
    CHECK(test::error_of([&] { parse_cache_size(bad); }).find("must be a number") != std::string::npos);
  }
}

TEST_CASE("last-level caches add up, and a shared cache counts once") {
  const Processors processors;
  for (const int i : {0, 1, 2, 3}) {
    processors.add_cache(i, 1, "32K", str(i).c_str());
    processors.add_cache(i, 3, "16384K", i < 2 ? "0-1" : "2-3");
  }
  CHECK(last_level_cache_bytes(processors.root) == int64_t{32} << 20);
}

TEST_CASE("a machine without cache information is assumed to have 32 MiB") {
  CHECK(last_level_cache_bytes("/dev/null") == int64_t{32} << 20);
}

TEST_CASE("the machine has a device and threads") {
  const Machine machine = this_machine(Device::cpu());
  CHECK(machine.device == "cpu");
  CHECK(machine.threads >= 1);
  CHECK(machine.cache_bytes > 0);
  CHECK_FALSE(machine.processor.empty());
  CHECK_FALSE(machine.compiler.empty());
}
