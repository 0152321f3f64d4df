#pragma once
// Wrappers of the warpgroup instructions of sm_90a that the samples use.

#include <cstdint>

#include "ptx_vm/tests/tensor_cores.cuh"

namespace flatshard::ptx_vm {

__device__ inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kGroups>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
__device__ inline void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Sets the number of registers of each thread, below or above the number that the kernel started with.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// The matrix descriptor of 16 columns of a SwizzledTile from `column` on; rows are summed along k.
__device__ inline uint64_t descriptor(uint32_t tile, int column) {
  constexpr uint64_t kPatternBytes = 8 * SwizzledTile::kRowBytes, kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | kPatternBytes >> 4 << 32 | (tile + static_cast<uint32_t>(column) * 2) >> 4;
}

// d (64, 64) += a (64, 16) b (64, 16)^T; with !adds, d = a b^T.
__device__ inline void multiply(float (&d)[32], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{ .reg .pred adds; setp.ne.b32 adds, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, %32, %33, adds, 1, 1, 0, 0; }"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

}  // namespace flatshard::ptx_vm
