#include "runtime/gpu.h"

#include <cstdlib>
#include <string>

#include "build_config.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE(
    "a process requests 32 hardware queues before it uses a GPU, unless the user requests another number") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  constexpr const char* kQueues = "CUDA_DEVICE_MAX_CONNECTIONS";
  const char* const set = std::getenv(kQueues);
  const std::string before = set ? set : "32";
  unsetenv(kQueues);
  visible_gpus();
  CHECK(std::string(std::getenv(kQueues)) == "32");
  setenv(kQueues, "4", 1);
  visible_gpus();
  CHECK(std::string(std::getenv(kQueues)) == "4");
  setenv(kQueues, before.c_str(), 1);
}
