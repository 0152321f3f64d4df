#pragma once
// Copies by the copy engine of sm_90: boxes of a tensor to shared memory, with the barriers (mbarrier) that
// count their bytes; and pieces of shared memory to global memory.

#include <cuda.h>

#include "kernels/warpgroup.cuh"

namespace flatshard::cuda {

// --- barriers in shared memory; a phase ends when all arrivals and all expected bytes have come

__device__ inline void init_barrier(uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
// Makes initialized barriers visible to copies; the threads of the block need a barrier in addition.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
__device__ inline void arrive_and_expect(uint64_t* barrier, unsigned bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Waits for the end of a phase. The first, third, ... phase has parity 0, the others have parity 1. The phase
// before the first, with parity 1, counts as ended.
__device__ inline void wait(uint64_t* barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
      "@done bra END;\n"
      "bra AGAIN;\n"
      "END:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Two barriers for each of the stages of a tile that is filled again and again: use t is in stage t %
// kStages.
template <int kStages>
struct Ring {
  uint64_t full[kStages], empty[kStages];

  static __device__ int stage(int t) { return t % kStages; }
  static __device__ unsigned round(int t) { return t / kStages & 1; }
  // To be called by one thread. `fillers` and `readers` are the arrivals for each use.
  __device__ void init(unsigned fillers, unsigned readers) {
    for (int s = 0; s < kStages; ++s) init_barrier(&full[s], fillers), init_barrier(&empty[s], readers);
  }
  __device__ void wait_full(int t) { wait(&full[stage(t)], round(t)); }
  __device__ void wait_empty(int t) { wait(&empty[stage(t)], round(t) ^ 1); }
  __device__ void release(int t) { arrive(&empty[stage(t)]); }
};

// --- boxes

// Starts the copy of the box of a (rows, heads, D) tensor at (row, head, column). Elements outside the tensor
// become zero; all bytes count for the barrier.
__device__ inline void load_box(uint32_t to, const CUtensorMap& map, int column, int head, int row,
                                uint64_t* full) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, "
      "%4}], [%5];" ::"r"(to),
      "l"(&map), "r"(column), "r"(head), "r"(row), "r"(shared_address(full))
      : "memory");
}

// Copies kRows rows of a head from (row, column) on; their bytes count for the barrier.
template <int D, int kRows>
__device__ void load_tile(const PanelTile<D, kRows>& to, const CUtensorMap& map, int head, int row,
                          uint64_t* full, int column = 0) {
#pragma unroll
  for (int p = 0; p < to.kPanels; ++p) load_box(to.panel(p), map, column + p * to.kPanel, head, row, full);
}

// --- pieces of shared memory, copied to global memory by one thread; addresses and sizes are multiples of 16

// Starts a copy of a piece.
__device__ inline void store_piece(float* to, uint32_t from, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}
// Starts an addition of a piece. Each element is added once, but additions that nothing orders are added in
// any order.
__device__ inline void add_piece(float* to, uint32_t from, unsigned bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(from), "r"(bytes)
               : "memory");
}
// Groups the pieces that this thread started since its last commit.
__device__ inline void commit_pieces() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until all groups of this thread have been read from shared memory.
__device__ inline void wait_for_reads() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// Waits until all groups of this thread are in global memory.
__device__ inline void wait_for_pieces() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Orders this thread's accesses to global memory, and those that it has waited for, with pieces: the ones
// that it has waited for come before, the ones that it starts come after.
__device__ inline void fence_pieces() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// A count in global memory, by which blocks wait for each other: whoever reads a value sees what all threads
// wrote before their additions to it.
__device__ inline int load_acquire(const int* from) {
  int value;
  asm volatile("ld.acquire.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void add_release(int* to, int value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

using EncodeTensorMap = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                     const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                     CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                     CUtensorMapFloatOOBfill);

// The driver's function, found without linking against the driver.
inline EncodeTensorMap tensor_map_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cuda_check(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
      "cudaGetDriverEntryPointByVersion");
  check(found == cudaDriverEntryPointSuccess, "this driver has no cuTensorMapEncodeTiled; update it");
  return reinterpret_cast<EncodeTensorMap>(function);
}

// A (rows, heads, columns) tensor of a 16-bit type, of which boxes of one head are copied.
struct BoxedTensor {
  void* begin;
  DType dtype;
  int64_t extents[3], strides[2];  // elements: columns, heads, rows; between heads, between rows
  int columns, rows;               // of a box
};

// The map for its boxes, swizzled like a PanelTile.
inline CUtensorMap map_of_boxes(const BoxedTensor& t) {
  static const EncodeTensorMap encode = tensor_map_encoder();
  const auto number = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t extents[] = {number(t.extents[0]), number(t.extents[1]), number(t.extents[2])};
  const cuuint64_t strides[] = {number(t.strides[0] * 2), number(t.strides[1] * 2)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(t.columns), 1, static_cast<cuuint32_t>(t.rows)},
                   ones[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status = encode(
      &map, t.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3,
      t.begin, extents, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      t.columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(status == CUDA_SUCCESS, "cuTensorMapEncodeTiled fails with error ", static_cast<int>(status), " for ",
        t.extents[2], " rows of ", t.extents[1], " x ", t.extents[0], " elements");
  return map;
}

}  // namespace flatshard::cuda
