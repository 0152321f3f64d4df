#pragma once
// Wrappers of the sm_80 instructions for tensor-core kernels, one function each, and swizzled tiles in shared
// memory. All operations are warp-wide: lane l holds its part of each 16 x 16 or 16 x 8 matrix in registers.

#include "kernels/cuda_util.cuh"

namespace flatshard::cuda {

// Rows of D elements in shared memory, in chunks of 16 bytes. Chunks are swizzled within groups of kGroup by
// the row index, so that three access patterns are free of bank conflicts: the same chunk of 8 rows, as
// ldmatrix reads it; 8 neighboring chunks of a row; and for 32-bit elements two neighboring chunks of 4 rows.
template <class T, int D>
struct SwizzledTile {
  static constexpr int kChunk = kPackSize<T>;  // elements per chunk
  static constexpr int kChunks = D / kChunk;   // chunks per row
  static constexpr int kGroup = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : kChunks % 2 == 0 ? 2 : 1;
  static_assert(D % kChunk == 0);
  static constexpr int bytes(int rows) { return rows * kChunks * 16; }

  uint32_t begin;  // address in shared memory; a multiple of 128

  static __device__ int turn(int row) {
    if constexpr (sizeof(T) == 4 && kGroup == 8) return row % 4 * 2 + row / 4 % 2;
    return row % 8 / (8 / kGroup);
  }
  __device__ uint32_t at(int row, int chunk) const {
    return begin + static_cast<uint32_t>(row * kChunks + (chunk ^ turn(row))) * 16;
  }
  // Moves the address of a chunk by `chunks` within its row. The index of the chunk and `chunks` must have no
  // bit in common.
  static __device__ uint32_t further(uint32_t place, int chunks) {
    return (place ^ static_cast<uint32_t>(chunks % kGroup * 16)) + chunks / kGroup * kGroup * 16;
  }
  // Moves to the same chunk `rows` rows below. The lowest three bits of the row and of `rows` must have no
  // bit in common.
  static __device__ uint32_t below(uint32_t place, int rows) {
    return (place ^ static_cast<uint32_t>(turn(rows) * 16)) + rows * kChunks * 16;
  }
};

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Starts a copy of 16 bytes to shared memory. If `exists` is false it writes zeros and does not read `from`,
// which may be outside of the tensor.
__device__ inline void copy_async(uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(exists ? 16 : 0)
               : "memory");
}
// Starts a copy of 4 bytes, or writes zeros.
__device__ inline void copy_word_async(uint32_t to, const void* from, bool exists) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(exists ? 4 : 0)
               : "memory");
}
// Groups the copies that this thread started since its last commit.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most the latest kGroups groups of this thread are pending. For the copies of other threads a
// barrier is needed in addition.
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

// sums (16, 8) += a (16, 16) b (16, 8). Lane l holds columns 2 (l % 4) and 2 (l % 4) + 1 of two rows: sums[0]
// and sums[1] are in row l / 4, sums[2] and sums[3] in row l / 4 + 8.
template <class T>
__device__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void multiply_add<bf16>(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<f16>(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to T, the first in the low half.
template <class T>
__device__ uint32_t pack(float low, float high);
template <>
__device__ inline uint32_t pack<bf16>(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
template <>
__device__ inline uint32_t pack<f16>(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

__device__ inline void store_shared(uint32_t to, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
__device__ inline void store_shared(uint32_t to, float2 value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(value.x), "f"(value.y) : "memory");
}
__device__ inline void store_shared(uint32_t to, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
__device__ inline uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
__device__ inline float4 load_four(uint32_t from) {
  const uint4 v = load_shared(from);
  return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
}
__device__ inline float2 load_two(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

}  // namespace flatshard::cuda
