// Offsets of elements beyond 2^31 in CUDA kernels. The rows are pages of the host that the device may access:
// device memory of this size would take the PTX machine gigabytes, as it keeps a state for each byte.

#include "build_config.h"
#include "runtime/cuda_check.h"
#include "tests/kernels/wide_rows.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

WidePlace on_gpu() {
  return {.device = Device::cuda(0),
          .lock =
              [](void* pages, size_t bytes) {
                cuda_check(cudaHostRegister(pages, bytes, cudaHostRegisterDefault), "cudaHostRegister");
              },
          .unlock = [](void* pages) { cudaHostUnregister(pages); }};
}

struct Tier {
  explicit Tier(AttentionTier tier) { use_attention_tier(tier); }
  ~Tier() { use_attention_tier(AttentionTier::newest); }
};

void compare(const WideCase& c) {
  const WidePlace gpu = on_gpu();
  CAPTURE(c.name);
  CHECK(c.run(gpu, true) == c.run(gpu, false));
}

}  // namespace

// cuBLASLt computes products, with offsets of its own.
TEST_CASE("CUDA kernels give rows that begin past element 2^32 the bits of rows side by side" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  for (const WideCase& c : wide_cases())
    if (c.name != "gemm" && (kCublasBuilt || c.name != "bias_backward")) compare(c);
}

TEST_CASE("attention for all GPUs, and in one pass, gives such rows the bits of rows side by side" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  for (const AttentionTier tier : {AttentionTier::sm_80, AttentionTier::one_pass}) {
    const Tier used(tier);
    for (const WideCase& c : wide_cases())
      if (c.name == "attention in bf16") compare(c);
  }
}

// The rows exist in no memory: the call must be refused before a kernel starts.
TEST_CASE("attention refuses more tiles of a group than a GPU counts" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  constexpr int64_t kRows = int64_t{1} << 29, kHeads = 64, D = 8;
  const WidePlace gpu = on_gpu();
  const WideMemory some(gpu, DType::f32, 1, 64, 64), ends(gpu, DType::i32, 1, 2, 2);
  const Tensor q = some.as({kRows, kHeads, D}), k = some.as({kRows, 1, D});
  const std::string error = error_of([&] {
    run_wide(gpu, [&](Stream& s, Arena& scratch) {
      attention_forward(s, scratch,
                        {.o = q,
                         .lse = some.as({kHeads, kRows}),
                         .q = q,
                         .k = k,
                         .v = k,
                         .mask = {.cu_seqlens = ends.as({2})},
                         .scale = 1});
    });
  });
  CHECK(missing_from(error, {"536870912 queries", "64 heads", "at most 2147483647"}) == "");
}
