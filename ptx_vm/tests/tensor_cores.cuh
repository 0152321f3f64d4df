#pragma once
// Wrappers of the sm_80 instructions that the samples use: asynchronous copies, ldmatrix and mma.

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace flatshard::ptx_vm {

using bf16 = __nv_bfloat16;

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Rows of 64 elements of 16 bits in shared memory, in chunks of 16 bytes. Chunks are swizzled by the row, so
// that the same chunk of 8 rows is read without bank conflicts.
struct SwizzledTile {
  static constexpr int kColumns = 64, kChunk = 8, kChunks = kColumns / kChunk;
  static constexpr int kRowBytes = kColumns * 2;

  uint32_t begin;  // address in shared memory; for wgmma a multiple of 1024

  __device__ uint32_t at(int row, int chunk) const {
    return begin + static_cast<uint32_t>(row * kRowBytes + (chunk ^ row % 8) * 16);
  }
};

// Starts a copy of 16 bytes to shared memory. If `exists` is false it writes zeros and reads nothing.
__device__ inline void copy_async(uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroups>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Loads four 8 x 8 matrices; lane l passes the address of row l % 8 of matrix l / 8.
__device__ inline void load_pieces(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
__device__ inline void load_pieces_transposed(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}

// sums (16, 8) += a (16, 16) b (16, 8)
__device__ inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to bf16, the first in the low half.
__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

}  // namespace flatshard::ptx_vm
