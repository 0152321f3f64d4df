#include "runtime/host_memory.h"

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("the memory that is available is more than a test needs and less than there can be") {
  const int64_t bytes = available_host_bytes();
  CHECK(bytes > (int64_t{1} << 20));
  CHECK(bytes < (int64_t{1} << 50));
}

TEST_CASE("a test can make memory scarce for a while") {
  const int64_t before = available_host_bytes();
  {
    const ScopedHostMemory scarce(1000);
    CHECK(available_host_bytes() == 1000);
    const ScopedHostMemory scarcer(10);
    CHECK(available_host_bytes() == 10);
  }
  CHECK(available_host_bytes() > before / 2);
}
