// The project's kernels are deterministic and no block depends on another running: their bits do not depend
// on the order of warps or the number of resident blocks.

#include <algorithm>
#include <utility>

#include "bench/case.h"
#include "kernels/attention.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/registry.h"
#include "tests/kernels/outputs.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

TEST_CASE("every CUDA kernel gives the same bits under every schedule and number of resident blocks") {
  for (const Case& c : all_cases(Scale::test)) {
    if (!c.has_cuda_kernel) continue;
    CAPTURE(label(c));
    const auto expected = test::output_bytes(c, {.device = Device::cuda(0)});
    for (const auto& [schedule, resident] : {std::pair{Schedule::in_order, 1u},
                                             {Schedule::reverse, 0u},
                                             {Schedule::round_robin, 3u},
                                             {Schedule::random, 1u},
                                             {Schedule::random, 0u}}) {
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

TEST_CASE("a device of either architecture gives the same bits, with the same kernels" *
          doctest::test_suite("nightly")) {
  const std::vector<LoadedKernel> kernels = load_everything();
  const auto is_older = [](const LoadedKernel& k) {
    return k.target == "sm_80" && k.name.find("rmsnorm") != std::string::npos;
  };
  if (std::none_of(kernels.begin(), kernels.end(), is_older))
    return test::skip("the kernels are not compiled for sm_80, which FLATSHARD_CUDA_ARCHS=80 does");
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
