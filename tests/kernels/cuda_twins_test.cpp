// What must hold for every op that has a CUDA twin, on every case of it. In flatshard_tests it runs on a GPU;
// in ptx_vm_tests on the PTX machine, where device "cuda" simply exists.

#include "bench/case.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;

TEST_CASE("every op with a CUDA twin equals its formula on a GPU") {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  for (const Case& c : all_cases(Scale::test)) {
    if (!c.has_cuda_twin) continue;
    CAPTURE(label(c));
    CHECK(max_error(c, {.device = Device::cuda(0)}) <= tolerance(c));
  }
}
