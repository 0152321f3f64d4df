#pragma once
// The instructions of sm_80 that kernels on tensor cores are made of, one function each, and the tiles of
// shared memory that they work on. All of it is a warp's: lane l holds its part of each 16 x 16 or 16 x 8
// piece in registers.

#include <cstdint>

#include <cuda_bf16.h>

#include "runtime/dtype.h"

namespace flatshard::cuda {

inline constexpr int kChunk = 8;  // elements of 16 bits that move at a time

// Rows of D elements in shared memory. Chunk c of row r lies where chunk c ^ (r % 8) would: so the same chunk
// of 8 rows, which ldmatrix reads at a time, lies in all 32 banks, and so do 8 chunks of one row.
template <int D>
struct SwizzledTile {
  static_assert(D % (8 * kChunk) == 0);
  static constexpr int kChunks = D / kChunk;
  static constexpr int bytes(int rows) { return rows * D * 2; }

  uint32_t begin;  // in shared memory; a multiple of 16

  __device__ uint32_t at(int row, int chunk) const {
    return begin + static_cast<uint32_t>(row * kChunks + (chunk ^ (row % 8))) * 16;
  }
};

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Begins to copy 16 bytes to shared memory; with `exists` false they become zero and `from` is not read.
__device__ inline void copy_async(uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
// What this thread began to copy since the last commit is a group.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all of this thread's groups but the latest kGroups have arrived. Other threads' need a barrier
// besides.
template <int kGroups>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

// Four 8 x 8 pieces; lane l gives the address of row l % 8 of piece l / 8.
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

// sums (16, 8) += a (16, 16) b (16, 8). Lane l holds of a row sums: (l / 4, 2 (l % 4)) and the next in 0 and
// 1, eight rows below in 2 and 3.
__device__ inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats as bf16, the first in the low half.
__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

__device__ inline void store_shared(uint32_t to, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ inline uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

}  // namespace flatshard::cuda
