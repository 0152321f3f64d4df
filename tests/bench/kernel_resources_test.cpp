// The resources of the CUDA kernels: none uses the stack, which is memory, except those listed here.

#include "bench/kernel_resources.h"

#include <algorithm>
#include <set>
#include <vector>

#include "build_config.h"
#include "model/param_groups.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;

namespace {

// The hot kernels of a bf16 step. Each must exist for every architecture.
constexpr const char* kHot[] = {
    "forward_kernel<bf16, 64>(ForwardArguments*",
    "forward_kernel<bf16, 80>(ForwardArguments*",
    "forward_kernel<bf16, 96>(ForwardArguments*",
    "forward_kernel<bf16, 128>(ForwardArguments*",
    "forward_kernel<bf16, 256>(ForwardArguments*",
    "query_gradient_kernel<bf16, *",
    "key_gradient_kernel<bf16, 64>*",
    "key_gradient_kernel<bf16, 80>*",
    "key_gradient_kernel<bf16, 128>*",
    "key_gradient_kernel<bf16, 256>*",
    "rmsnorm_forward_kernel<bf16, bf16, 8, 2, false>*",
    "rmsnorm_backward_kernel<bf16, bf16, 8, 1, false>*",
    "layernorm_forward_kernel<bf16, bf16, 8, 2, false>*",
    "layernorm_backward_kernel<bf16, bf16, 8, 1, false>*",
    "add_partials_kernel<*",
    "bias_backward_kernel<bf16, 8>*",
    "flat_kernel<4, Rotate<bf16> >*",
    "flat_kernel<8, Forward<bf16*",   // SwiGLU, GELU
    "flat_kernel<8, Backward<bf16*",  // the same
    "flat_kernel<8, Gather<bf16> >*",
    "add_rows_kernel<bf16, 4>*",
    "count_digits_kernel*",
    "place_kernel*",
    "group_kernel*",
    "cross_entropy_kernel<4, float, bf16>*",
    "flat_kernel<4, CastOp<float, bf16> >*",
    "flat_kernel<8, AddOp<bf16> >*",
    "flat_kernel<4, SumLanes<4, bf16> >*",
    "flat_kernel<4, SumLanes<4, float> >*",
    "squares_kernel<float, 4>*",
    "adamw_kernel<4, float, bf16>*",
    "adamw8bit_kernel<4, float, bf16>*",
};

struct Exception {
  const char* pattern;
  uint32_t most_bytes;
};
constexpr Exception kExceptions[] = {
    {"flat_kernel<*SumLanes<0, *", 640},                        // more than 8 lanes: an array of sums
    {"key_gradient_kernel<float, *", 16},                       // f32, which is for comparison
    {"forward_kernel<float, 128>*", 8},                         // the same, on sm_120
    {"key_gradient_kernel<*, 96>*", 16},                        // on sm_120: a few registers
    {"add_rows_kernel<float, 4>*", 16},                         // the same; around a call
    {"backward_kernel<float, float, 4>(BackwardPointers*", 8},  // the same
    {"cross_entropy_kernel<8, *", 16},  // 16-bit logits, which no step uses; around a call
};

constexpr const char* kSpills = "*spilling_kernel*";  // spilling_kernel.cu

const std::vector<KernelResources>& resources() {
  static const std::vector<KernelResources> all = kernel_resources("/proc/self/exe");
  return all;
}

std::vector<KernelResources> resources_of(const std::string& pattern) {
  std::vector<KernelResources> found;
  std::copy_if(resources().begin(), resources().end(), std::back_inserter(found),
               [&](const KernelResources& k) { return matches(pattern, k.kernel); });
  return found;
}

std::set<uint32_t> architectures(const std::vector<KernelResources>& of) {
  std::set<uint32_t> all;
  for (const KernelResources& k : of) all.insert(k.arch);
  return all;
}

// Kernels are tuned for sm_80 and sm_90; on other architectures a few registers may spill.
constexpr uint32_t kMostElsewhere = 32;
bool is_tuned_for(uint32_t arch) { return arch == 80 || arch == 90; }

uint32_t most_stack_bytes(const std::string& kernel) {
  for (const Exception& e : kExceptions)
    if (matches(e.pattern, kernel)) return e.most_bytes;
  return 0;
}

}  // namespace

TEST_CASE("a kernel that spills registers is found for every architecture") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  const std::vector<KernelResources> spills = resources_of(kSpills);
  CHECK(spills.size() >= 1);
  for (const KernelResources& k : spills) {
    CAPTURE(k.arch);
    CHECK(k.registers > 0);
    CHECK(k.registers <= 64);
    CHECK(k.stack_bytes >= 4 * (128 - 64));
    CHECK(k.shared_bytes == 0);
  }
}

TEST_CASE("no kernel uses the stack, except known ones") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  for (const KernelResources& k : resources()) {
    if (matches(kSpills, k.kernel)) continue;
    CAPTURE(k.kernel);
    CAPTURE(k.arch);
    CHECK(k.stack_bytes <= std::max(most_stack_bytes(k.kernel), is_tuned_for(k.arch) ? 0 : kMostElsewhere));
  }
}

TEST_CASE("hot kernels are compiled for every architecture and are not among the exceptions") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  const std::set<uint32_t> all = architectures(resources_of(kSpills));
  for (const char* const pattern : kHot) {
    CAPTURE(pattern);
    const std::vector<KernelResources> found = resources_of(pattern);
    CHECK(architectures(found) == all);
    for (const KernelResources& k : found) {
      CHECK(most_stack_bytes(k.kernel) == 0);
      CHECK(k.shared_bytes == found.front().shared_bytes);
    }
  }
}
