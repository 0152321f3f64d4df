// Attention on a GPU, by the kernels that all GPUs run, against the CPU kernel, on shapes that are not
// multiples of the tiles: all element types, tile sizes, masks and group sizes. It runs on the PTX machine in
// ptx_vm_tests, and on a GPU in flatshard_tests.

#include <algorithm>

#include "bench/case.h"
#include "kernels/attention.h"
#include "tests/kernels/outputs.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

namespace {

std::vector<Case> cases() {
  std::vector<Case> all = all_cases(Scale::vm);
  std::erase_if(all, [](const Case& c) { return c.stem != "attention"; });
  return all;
}

struct OfSm80 {
  OfSm80() { use_attention_tier(AttentionTier::sm_80); }
  ~OfSm80() { use_attention_tier(AttentionTier::newest); }
};

}  // namespace

TEST_CASE("attention on a GPU matches the CPU for any summation order of the tensor cores" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  const OfSm80 tier;
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    const Values expected = test::output_values(c, Device::cpu());
    for_every_order_of_sums([&] {
      for (const auto& [name, values] : test::output_values(c, Device::cuda(0))) {
        CAPTURE(name);
        CHECK(max_error(values, expected.at(name)) <= tolerance(c));
      }
    });
  }
}

TEST_CASE("attention on a GPU gives the same bits in every order of warps and blocks" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  const OfSm80 tier;
  for (const Case& c : cases()) {
    if (c.shape.find("x 64 ") == c.shape.npos) continue;  // larger heads add no sharing between warps
    CAPTURE(label(c));
    const auto expected = test::output_bytes(c, {.device = Device::cuda(0)});
    for_every_order([&] { CHECK(test::output_bytes(c, {.device = Device::cuda(0)}) == expected); });
  }
}
