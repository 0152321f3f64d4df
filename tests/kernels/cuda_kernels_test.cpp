// Properties of all ops with a CUDA kernel, checked on every case. It runs on a GPU in flatshard_tests, and
// on the PTX machine, where device "cuda" always exists, in ptx_vm_tests.

#include <set>

#include "bench/case.h"
#include "comm/optimizer_kinds.h"
#include "kernels/simd.h"
#include "tests/kernels/outputs.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;

namespace {

// Whether the CPU kernels fuse multiply and add, as a GPU does: (1 + 2^-12)^2 - (1 + 2^-11) = 2^-24.
bool fuses_on_cpu() {
  const simd::Floats x = simd::splat(1.0f + 0x1p-12f);
  return simd::fma(x, x, simd::splat(-1.0f - 0x1p-11f))[0] != 0.0f;
}

}  // namespace

TEST_CASE("every op with a CUDA kernel matches its formula on a GPU" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  for (const Case& c : all_cases(Scale::test)) {
    if (!c.has_cuda_kernel) continue;
    CAPTURE(label(c));
    CHECK(max_error(c, {.device = Device::cuda(0)}) <= tolerance(c));
  }
}

// The shapes of `bench --vm` have rows of every width that the kernels of norms distinguish; misaligned ones
// are processed element by element.
TEST_CASE("norms of narrow and wide rows have the values of the CPU on a GPU" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  for (const Case& c : all_cases(Scale::vm)) {
    if (c.stem != "rmsnorm" && c.stem != "layernorm") continue;
    CAPTURE(label(c));
    Setup expected(c);
    expected.run();
    for (const int64_t misalign : {0, 4}) {
      CAPTURE(misalign);
      Setup got(c, {.device = Device::cuda(0), .misalign = misalign});
      got.run();
      for (const Arg& arg : c.args)
        if (arg.role == Role::output || arg.role == Role::updated)
          CHECK(max_error(got.values(arg.name), expected.values(arg.name)) <= tolerance(c));
    }
  }
}

TEST_CASE("CPU and CUDA kernels with the same order of arithmetic give the same bits" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  if (!fuses_on_cpu()) return test::skip("the processor has no fused multiply-add");
  std::set<std::string> same_bits{"sum_squares", "ordered_sum", "elementwise", "rope",       "embedding",
                                  "dropout",     "init",        "four_bit",    "gather_rows"};
  for (const OptimizerKind& kind : optimizer_kinds()) same_bits.insert(kind.name);
  for (const Case& c : all_cases(Scale::test)) {
    if (!c.has_cuda_kernel || !same_bits.contains(c.stem) || c.op == "softcap") continue;  // an exponential
    CAPTURE(label(c));
    const auto expected = test::output_bytes(c);
    CHECK(test::output_bytes(c, {.device = Device::cuda(0)}) == expected);
    CHECK(test::output_bytes(c, {.device = Device::cuda(0), .misalign = 4}) == expected);
  }
}
