// The project's kernels are deterministic and no block depends on another running: their bits do not depend
// on the order of warps or the number of resident blocks.

#include "bench/case.h"
#include "kernels/attention.h"
#include "tests/kernels/outputs.h"
#include "tests/ptx_vm/ptx_vm.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

TEST_CASE("every CUDA kernel gives the same bits under every schedule and number of resident blocks") {
  for (const Case& c : all_cases(Scale::test)) {
    if (!c.has_cuda_kernel) continue;
    CAPTURE(label(c));
    const auto expected = test::output_bytes(c, {.device = Device::cuda(0)});
    for (const uint32_t resident : {1, 3, 0})
      for (const Schedule schedule :
           {Schedule::in_order, Schedule::reverse, Schedule::round_robin, Schedule::random}) {
        const ScopedOptions scope({.schedule = schedule, .seed = 7, .resident_blocks = resident});
        CAPTURE(describe(options()));
        CHECK(test::output_bytes(c, {.device = Device::cuda(0)}) == expected);
      }
  }
}

TEST_CASE("the kernels run on the PTX machine, which counts their launches and instructions") {
  const uint64_t launches = counters().launches, instructions = counters().warp_instructions;
  for (const Case& c : all_cases(Scale::test))
    if (c.op == "rmsnorm_forward") test::output_bytes(c, {.device = Device::cuda(0)});
  CHECK(counters().launches > launches);
  CHECK(counters().warp_instructions > instructions + 1000);
}

TEST_CASE("a device of either architecture gives the same bits, with the same kernels") {
  use_attention_tier(AttentionTier::sm_80);  // those of sm_90 order sums differently
  for (const Case& c : all_cases(Scale::test)) {
    if (!c.has_cuda_kernel) continue;
    CAPTURE(label(c));
    const ScopedOptions newer({.arch = 90});
    const auto expected = test::output_bytes(c, {.device = Device::cuda(0)});
    const ScopedOptions older({.arch = 80});
    CHECK(test::output_bytes(c, {.device = Device::cuda(0)}) == expected);
  }
  use_attention_tier(AttentionTier::newest);
}
