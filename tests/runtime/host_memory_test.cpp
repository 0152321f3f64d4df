#include "runtime/host_memory.h"

#include <sys/resource.h>
#include <vector>

#include "build_config.h"
#include "runtime/check.h"
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

TEST_CASE("a limit on the address space is compared with what the process has left of it") {
  if (*kSanitizer != '\0') return test::skip("sanitizers reserve terabytes of address space");
  constexpr int64_t kMiB = 1 << 20, kMany = int64_t{1} << 46;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
  if (before.rlim_cur == RLIM_INFINITY) CHECK_NOTHROW(require_address_space(kMany, "tests"));
  const auto set = [&](rlim_t bytes) {
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
  };
  constexpr rlim_t kMost = rlim_t{1} << 45;  // more than the process has
  set(kMost);
  CHECK_NOTHROW(require_address_space(kMiB, "tests"));
  const std::string refused = test::error_of([&] { require_address_space(kMany, "tests"); });
  set(before.rlim_cur);
  CHECK(test::missing_from(refused, {"out of host memory", "tests need 64.0 TiB", "32.0 TiB", "ulimit -v"}) ==
        "");
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
