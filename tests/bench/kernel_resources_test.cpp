// The resources of the CUDA kernels: none uses the stack, which is memory, and the kernels of a bf16 step
// keep what the heads of their files state.

#include "bench/kernel_resources.h"

#include <algorithm>
#include <set>
#include <vector>

#include "build_config.h"
#include "model/param_selection.h"
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
    "flat_kernel<4, Rotate<bf16, *> >*",
    "flat_kernel<8, Forward<bf16*",  // SwiGLU, GEGLU
    "flat_kernel<8, Backward<bf16*",
    "flat_kernel<8, Map<bf16, Gelu<*",
    "flat_kernel<8, Map<bf16, Gradient<*",
    "flat_kernel<8, Gather<bf16> >*",
    "flat_kernel<8, GatherRowsOp<bf16> >*",
    "flat_kernel<8, ScatterRowsOp<bf16, *> >*",
    "add_rows_kernel<bf16, 4>*",
    "count_digits_kernel*",
    "place_kernel*",
    "group_kernel*",
    "cross_entropy_kernel<4, float, bf16>*",
    "flat_kernel<4, CastOp<float, bf16> >*",
    "flat_kernel<8, Map<bf16, Sum, *> >*",
    "flat_kernel<4, SumLanes<4, bf16> >*",
    "flat_kernel<4, SumLanes<4, float> >*",
    "squares_kernel<float, 4>*",
    "optimizer_kernel<4, AdamWRule, float, bf16>*",
    "optimizer_kernel<4, LionRule, float, bf16>*",
    "adamw8bit_kernel<4, float, bf16>*",
};

// What the heads of the kernel files state for sm_90, for the kernels of a bf16 step: upper bounds of the
// registers of a thread and of the shared memory of a block, dynamic memory included, and how many blocks of
// `threads` fit on an SM.
struct Tile {
  const char* pattern;
  uint32_t registers, shared_bytes, threads, blocks;
};
constexpr Tile kTiles[] = {
    {"optimizer_kernel<4, AdamWRule, float, bf16>*", 56, 0, 256, 4},
    {"optimizer_kernel<4, LionRule, float, bf16>*", 40, 0, 256, 6},
    {"adamw8bit_kernel<4, float, bf16>*", 112, 49024, 256, 2},
    {"forward_kernel<bf16, 64>(ForwardArguments*", 224, 32 << 10, 128, 2},  // attention
    {"forward_kernel<bf16, 128>(ForwardArguments*", 255, 64 << 10, 128, 2},
    {"query_gradient_kernel<bf16, 64>*", 200, 48 << 10, 128, 2},
    {"query_gradient_kernel<bf16, 128>*", 160, 64 << 10, 128, 3},
    {"key_gradient_kernel<bf16, 64>*", 232, 49 << 10, 128, 2},
    {"key_gradient_kernel<bf16, 128>*", 248, (64 << 10) + 512, 128, 2},
    {"forward_sm90_kernel<bf16, 64, 3>*", 128, 90 << 10, 512, 1},
    {"forward_sm90_kernel<bf16, 64, 2>*", 168, 82 << 10, 384, 1},
    {"forward_sm90_kernel<bf16, 128, 2>*", 168, 162 << 10, 384, 1},
    {"forward_sm90_kernel<bf16, 256, 2>*", 168, 194 << 10, 384, 1},
    {"query_gradient_sm90_kernel<bf16, 128, *>*", 168, 194 << 10, 384, 1},
    {"key_gradient_sm90_kernel<bf16, 128, *>*", 168, 165 << 10, 384, 1},
    {"cross_entropy_kernel<4, float, bf16>*", 32, 256, 1024, 2},
    {"head_exponentials_loss_kernel<bf16>*", 40, 256, 512, 3},
    {"flat_kernel<8, Mask<bf16> >*", 48, 0, 256, 5},  // dropout
    {"flat_kernel<4, CastOp<float, bf16> >*", 32, 0, 256, 8},
    {"flat_kernel<8, Map<bf16, Sum, *> >*", 40, 0, 256, 6},
    {"flat_kernel<8, Map<bf16, Scaled, *> >*", 32, 0, 256, 8},
    {"flat_kernel<8, Map<bf16, Capped, *> >*", 32, 0, 256, 8},
    {"flat_kernel<8, Gather<bf16> >*", 48, 0, 256, 5},
    {"flat_kernel<8, GatherRowsOp<bf16> >*", 32, 0, 256, 8},
    {"flat_kernel<8, ScatterRowsOp<bf16, false> >*", 32, 0, 256, 8},
    {"flat_kernel<8, ScatterRowsOp<bf16, true> >*", 48, 0, 256, 5},
    {"add_rows_kernel<bf16, 4>*", 56, 0, 256, 4},
    {"quantize_kernel<bf16, true>*", 32, 128, 256, 8},  // 4 bits
    {"dequantize_kernel<bf16, 8>*", 32, 1096, 256, 8},
    {"flat_kernel<8, Map<bf16, Gelu<*", 32, 0, 256, 8},
    {"flat_kernel<8, Map<bf16, Gradient<*", 48, 0, 256, 5},
    {"bias_backward_kernel<bf16, 8>*", 40, 16 << 10, 512, 3},
    {"count_digits_kernel*", 32, 2048, 256, 8},
    {"place_kernel*", 40, 20 << 10, 256, 6},
    {"flat_kernel<*, MakeValues<*", 48, 0, 256, 5},
    {"flat_kernel<4, SumLanes<4, bf16> >*", 32, 0, 256, 8},
    {"flat_kernel<4, SumLanes<16, bf16> >*", 32, 0, 256, 8},
    {"flat_kernel<4, SumLanes<0, bf16> >*", 80, 0, 256, 3},
    {"forward_kernel<bf16, bf16, 8, 8>*", 64, 0, 256, 4},  // RMSNorm of q and k
    {"backward_kernel<bf16, bf16, 8, 8, 1, false>*", 120, 16 << 10, 256, 2},
    {"rmsnorm_forward_kernel<bf16, bf16, 8, 2, false>*", 64, 256, 512, 2},
    {"rmsnorm_backward_kernel<bf16, bf16, 8, 1, false>*", 64, 16640, 512, 2},
    {"layernorm_forward_kernel<bf16, bf16, 8, 2, false>*", 64, 256, 512, 2},
    {"layernorm_backward_kernel<bf16, bf16, 8, 1, false>*", 64, 16896, 512, 2},
    {"flat_kernel<4, Rotate<bf16, *> >*", 56, 0, 256, 4},
    {"squares_kernel<float, 4>*", 40, 0, 256, 6},
    {"group_kernel*", 32, 2056, 256, 8},
    {"flat_kernel<8, Forward<bf16, *", 48, 0, 256, 5},  // SwiGLU, GEGLU
    {"flat_kernel<8, Backward<bf16, *", 64, 0, 256, 4},
};

// What a warp of attention executes on sm_90 for a tile that needs no mask and has no soft cap, and a warp of
// a matrix product for a stage: the products of one tile or stage, and upper bounds of its instructions. If
// each score had a condition for them, they would be twice as many.
struct TileLoop {
  const char* pattern;
  uint32_t products, instructions;
  // The most fences and waits of a tile's products. Products that ptxas serializes have one each.
  uint32_t product_syncs = 5;
  int kernels = 2;  // types
};
constexpr TileLoop kTileLoops[] = {
    {"forward_sm90_kernel<*16, 64, 2>*", 12, 440},
    {"forward_sm90_kernel<*16, 64, 3>*", 12, 440},
    {"forward_sm90_kernel<*16, 128, 2>*", 16, 470},
    {"query_gradient_sm90_kernel<*16, 64, false>*", 16, 420},
    {"query_gradient_sm90_kernel<*16, 128, false>*", 20, 300},
    {"key_gradient_sm90_kernel<*16, 64, false>*", 24, 590},
    {"key_gradient_sm90_kernel<*16, 128, false>*", 24, 460},
    {"one_pass_kernel<*16, 64>*", 32, 700, 9},
    {"one_pass_kernel<*16, 128>*", 32, 560, 9},
    {"gemm_sm90_kernel<*PlainEnd<*>*", 4, 80, 3, 30},  // types of operands and of c, layouts, segments, rows
    {"gemm_sm90_kernel<*GatedEnd<*>*", 4, 80, 3, 12},  // types, gates, segments, gathered rows
    {"gemm_sm90_kernel<*GradientEnd<*>*", 4, 80, 3, 8},
    {"gemm_sm90_kernel<*RotatedEnd<*>*", 4, 80, 3, 4},  // types, heads
    {"gemm_sm90_kernel<*ExponentialEnd<*>*", 4, 80, 3, 2},
    {"query_gradient_kernel<*16, 64>*", 96, 380},
    {"query_gradient_kernel<*16, 128>*", 96, 335},
    {"key_gradient_kernel<*16, 64>*", 128, 490},
    {"key_gradient_kernel<*16, 128>*", 128, 410},
};
constexpr uint32_t kMostPredicated = 10;  // of each of these loops

// The blocks that fit on an SM: each of its four parts has 16384 registers, given to warps by eights a
// thread; of 228 KiB of shared memory the system takes 1 KiB for each block.
uint32_t blocks_that_fit(const Tile& tile) {
  const uint32_t warps = tile.threads / 32, per_warp = (tile.registers + 7) / 8 * 8 * 32;
  const uint32_t by_registers = 4 * (16384 / per_warp) / warps;
  const uint32_t by_shared = (228 << 10) / (tile.shared_bytes + 1024);
  return std::min({by_registers, by_shared, 2048 / tile.threads, 32u});
}

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

// Kernels are tuned for sm_80 and sm_90; on other architectures a few registers may spill: at most those of
// fp32 attention with heads of 256 on sm_120.
constexpr uint32_t kMostElsewhere = 48;
bool is_tuned_for(uint32_t arch) { return arch == 80 || arch == 90; }

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

TEST_CASE("no kernel spills registers or uses local memory on an architecture it is tuned for") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  for (const KernelResources& k : resources()) {
    if (matches(kSpills, k.kernel)) continue;
    CAPTURE(k.kernel);
    CAPTURE(k.arch);
    CHECK(k.stack_bytes <= (is_tuned_for(k.arch) ? 0 : kMostElsewhere));
  }
}

TEST_CASE("hot kernels are compiled for every architecture") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  const std::set<uint32_t> all = architectures(resources_of(kSpills));
  for (const char* const pattern : kHot) {
    CAPTURE(pattern);
    const std::vector<KernelResources> found = resources_of(pattern);
    CHECK(architectures(found) == all);
    for (const KernelResources& k : found) CHECK(k.shared_bytes == found.front().shared_bytes);
  }
}

TEST_CASE("kernels for sm_90 multiply by warpgroups, and attention for all GPUs by warps") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  if (!architectures(resources()).contains(90)) return test::skip("this build has no code for sm_90");
  int found = 0;
  for (const KernelResources& k : resources()) {
    CAPTURE(k.kernel);
    if (k.kernel.find("_sm90_kernel<") != std::string::npos) {
      ++found;
      CHECK(k.arch == 90);
      CHECK(k.wgmma > 0);
      CHECK(k.mma == 0);
    } else if (matches("forward_kernel<*16, *>(ForwardArguments*", k.kernel)) {
      CHECK(k.mma > 0);
      CHECK(k.wgmma == 0);
    }
  }
  // Attention: types; head sizes and tiles of o; soft cap or none, of dq, and dk and dv. Products: types of
  // operands and of c, layouts; gates and their gradients, heads that are rotated, exponentials. Products of
  // segments: with rows gathered or not y, dw of two types, and gates; dx and gradients.
  CHECK(found == 2 * (5 + 2 * (3 + 3)) + 2 * (2 * 4 + 3 * 2 + 1) + 2 * (2 * (1 + 2 + 2) + 1 + 2));
}

TEST_CASE("the kernels of a step keep the registers and the occupancy that their files state") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  if (!architectures(resources()).contains(90)) return test::skip("this build has no code for sm_90");
  for (const Tile& tile : kTiles) {
    CAPTURE(std::string(tile.pattern));
    CHECK(blocks_that_fit(tile) == tile.blocks);
    bool found = false;
    for (const KernelResources& k : resources_of(tile.pattern)) {
      if (k.arch != 90) continue;
      CAPTURE(k.kernel);
      CHECK(k.registers <= tile.registers);
      CHECK(k.shared_bytes <= tile.shared_bytes);
      found = true;
    }
    CHECK(found);
  }
}

TEST_CASE(
    "tiles of attention without mask and cap, and of products, execute few instructions beside their "
    "products") {
  if (!kCudaBuilt) return test::skip("this build has no CUDA");
  if (!architectures(resources()).contains(90)) return test::skip("this build has no code for sm_90");
  for (const TileLoop& bound : kTileLoops) {
    CAPTURE(std::string(bound.pattern));
    int kernels = 0;
    for (const KernelResources& k : resources_of(bound.pattern)) {
      if (k.arch != 90) continue;
      CAPTURE(k.kernel);
      ++kernels;
      CHECK(k.loop.products == bound.products);
      CHECK(k.loop.instructions <= bound.instructions);
      CHECK(k.loop.predicated <= kMostPredicated);
      CHECK(k.loop.product_syncs <= bound.product_syncs);
    }
    CHECK(kernels == bound.kernels);
  }
}
