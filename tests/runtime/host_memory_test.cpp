#include "runtime/host_memory.h"

#include <vector>

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("the available memory is plausible") {
  const int64_t bytes = available_host_bytes();
  CHECK(bytes > (int64_t{1} << 20));
  CHECK(bytes < (int64_t{1} << 50));
}

TEST_CASE("a test can limit the available memory temporarily") {
  const int64_t before = available_host_bytes();
  {
    const ScopedHostMemory scarce(1000);
    CHECK(available_host_bytes() == 1000);
    const ScopedHostMemory scarcer(10);
    CHECK(available_host_bytes() == 10);
  }
  CHECK(available_host_bytes() > before / 2);
}

TEST_CASE("a process sees its own memory grow, within the machine's memory") {
  const ProcessMemory before = process_memory();
  if (before.resident == 0) return test::skip("this system does not report the memory of a process");
  constexpr size_t kBytes = size_t{64} << 20;
  const std::vector<char> taken(kBytes, 1);
  const ProcessMemory after = process_memory();
  CHECK(after.resident - before.resident > static_cast<int64_t>(kBytes / 2));
  CHECK(after.peak >= after.resident);
  CHECK(after.machine > after.peak);
  CHECK(taken.back() == 1);
}
