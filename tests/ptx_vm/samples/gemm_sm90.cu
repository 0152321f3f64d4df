#include <algorithm>

#include <cuda.h>

#include "kernels/cuda_util.cuh"
#include "kernels/tensor_core.cuh"
#include "tests/ptx_vm/bulk.cuh"
#include "tests/ptx_vm/samples/gemm_sm90.h"
#include "tests/ptx_vm/samples/warpgroup.cuh"

namespace flatshard::ptx_vm {
namespace {

using namespace flatshard::cuda;

// A block computes a tile of kM x kN sums, kRows x kN of them in each of its warpgroups that multiply; the
// first warpgroup copies for them, kK terms at a time into the next stage of a ring.
constexpr int kRows = 64, kMultipliers = 2, kM = kRows * kMultipliers, kN = 128, kK = 64, kStages = 4;
constexpr int kGroup = 128, kThreads = kGroup * (1 + kMultipliers),
              kMultiplierWarps = kMultipliers * kGroup / kWarp;
// Of the registers that 384 threads begin with, 168 each.
constexpr int kRegistersToCopy = 40, kRegistersToMultiply = 232;

// Shared memory, from a multiple of kAlignment on. All tiles have rows of 128 bytes with the 128-byte
// swizzle.
constexpr int kAlignment = 1024, kBytesA = kM * kK * 2, kBytesB = kN * kK * 2,
              kStageBytes = kBytesA + kBytesB;
constexpr int kBoxColumns = 64, kBoxBytes = kRows * kBoxColumns * 2, kBoxes = kN / kBoxColumns;
constexpr int kResultBytes = kMultipliers * kBoxes * kBoxBytes;
constexpr int kSharedBytes = kStages * kStageBytes + kResultBytes + kAlignment;

struct Ring {
  uint64_t full[kStages], empty[kStages];  // mbarriers
};

// Step t of the ring: its stage, and the parity of the number of complete rounds before it.
__device__ int stage_of(int t) { return t % kStages; }
__device__ unsigned round_of(int t) { return t / kStages & 1; }

// The box of a matrix at (column, row), in elements.
__device__ void load_box(uint32_t to, const CUtensorMap& map, int column, int row, uint64_t* full) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3}], "
      "[%4];" ::"r"(to),
      "l"(&map), "r"(column), "r"(row), "r"(shared_address(full))
      : "memory");
}
__device__ void store_box(const CUtensorMap& map, int column, int row, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(column), "r"(row), "r"(from)
               : "memory");
}

__device__ void start(Ring& ring) {
  for (int s = 0; s < kStages; ++s) {
    init_barrier(&ring.full[s], 1);
    init_barrier(&ring.empty[s], kMultiplierWarps);
  }
  fence_barrier_init();
}

// By one thread. Elements of boxes beyond the edge arrive as zeros and count towards the bytes.
__device__ void copy_all(Ring& ring, uint32_t stages, const CUtensorMap& a, const CUtensorMap& b, int steps) {
  for (int t = 0; t < steps; ++t) {
    const int s = stage_of(t);
    const uint32_t stage = stages + s * kStageBytes;
    wait(&ring.empty[s], round_of(t) ^ 1);  // in the first round it is empty
    arrive_and_expect(&ring.full[s], kStageBytes);
    load_box(stage, a, t * kK, blockIdx.y * kM, &ring.full[s]);
    load_box(stage + kBytesA, b, t * kK, blockIdx.x * kN, &ring.full[s]);
  }
}

// The sums of the rows of warpgroup `group`. Products of one step run while the next are issued.
__device__ void multiply_all(float (&sums)[kN / 2], Ring& ring, uint32_t stages, int group, int steps) {
  const bool speaks = threadIdx.x % kWarp == 0;  // for its warp
  for (int t = 0; t < steps; ++t) {
    const int s = stage_of(t);
    const uint32_t a = stages + s * kStageBytes + group * kRows * kK * 2,
                   b = stages + s * kStageBytes + kBytesA;
    wait(&ring.full[s], round_of(t));
    __syncwarp();
    fence_products();
#pragma unroll
    for (int k = 0; k < kK; k += 16)
      multiply_64_128_16(sums, descriptor(a, k), descriptor(b, k), t > 0 || k > 0);
    commit_products();
    wait_for_products<1>();
    if (t > 0 && speaks) arrive(&ring.empty[stage_of(t - 1)]);
  }
  wait_for_products<0>();
}

__device__ void sync_group(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroup) : "memory");
}

// Through the group's shared memory, from which one thread stores it; elements beyond the edge are not
// written.
__device__ void write_sums(const float (&sums)[kN / 2], uint32_t result, const CUtensorMap& y, int group) {
  const int thread = threadIdx.x % kGroup, lane = thread % kWarp, row = thread / kWarp * 16 + lane / 4;
  const uint32_t boxes = result + group * kBoxes * kBoxBytes;
#pragma unroll
  for (int chunk = 0; chunk < kN / kPackSize<bf16>; ++chunk)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      constexpr int kChunksOfBox = kBoxColumns / kPackSize<bf16>;
      const uint32_t box = boxes + chunk / kChunksOfBox * kBoxBytes;
      store_shared(box + swizzled_chunk(row + 8 * half, chunk % kChunksOfBox) + lane % 4 * 4,
                   pack<bf16>(sums[4 * chunk + 2 * half], sums[4 * chunk + 2 * half + 1]));
    }
  fence_proxy_async();
  sync_group(group);
  if (thread > 0) return;
  for (int box = 0; box < kBoxes; ++box)
    store_box(y, blockIdx.x * kN + box * kBoxColumns, blockIdx.y * kM + group * kRows,
              boxes + box * kBoxBytes);
  commit_stores();
  wait_stores_read<0>();  // the block's shared memory must last as long
}

__global__ void __launch_bounds__(kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap y, const __grid_constant__ CUtensorMap a,
                const __grid_constant__ CUtensorMap b, int steps) {
  extern __shared__ unsigned char shared[];
  __shared__ Ring ring;
  const uint32_t stages = (shared_address(shared) + kAlignment - 1) / kAlignment * kAlignment;
  if (threadIdx.x == 0) start(ring);
  __syncthreads();
  if (threadIdx.x < kGroup) {
    give_registers<kRegistersToCopy>();
    if (threadIdx.x == 0) copy_all(ring, stages, a, b, steps);
    return;
  }
  take_registers<kRegistersToMultiply>();
  const int group = static_cast<int>(threadIdx.x) / kGroup - 1;
  float sums[kN / 2];
  multiply_all(sums, ring, stages, group, steps);
  write_sums(sums, stages + kStages * kStageBytes, y, group);
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

// The driver's own function, found without linking against it.
Encode encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cuda_check(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
      "cudaGetDriverEntryPointByVersion");
  check(found == cudaDriverEntryPointSuccess, "gemm: this driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<Encode>(function);
}

// Boxes of `rows` rows of 64 elements.
CUtensorMap map_of(const Tensor& matrix, int rows) {
  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(matrix.shape[1]),
                                 static_cast<cuuint64_t>(matrix.shape[0])};
  const cuuint64_t stride = extents[0] * 2;
  const cuuint32_t box[2] = {kBoxColumns, static_cast<cuuint32_t>(rows)}, ones[2] = {1, 1};
  CUtensorMap map;
  const CUresult status = encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, matrix.data, extents, &stride,
                                    box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                    CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check(status == CUDA_SUCCESS, "gemm: rows of ", matrix.shape[1],
        " elements must be multiples of 8, and begin at a multiple of 16 bytes");
  return map;
}

}  // namespace

bool gemm_sm90_runs() {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && major == 9;
}

void gemm_sm90(Stream& stream, const Tensor& y, const Tensor& a, const Tensor& b) {
  if (stream.planning()) return;
  const int64_t M = a.shape[0], N = b.shape[0], K = a.shape[1];
  cuda_check(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "cudaFuncSetAttribute");
  const dim3 grid(static_cast<unsigned>((N + kN - 1) / kN), static_cast<unsigned>((M + kM - 1) / kM));
  gemm_kernel<<<grid, kThreads, kSharedBytes, native(stream)>>>(
      map_of(y, kRows), map_of(a, kM), map_of(b, kN), static_cast<int>((K + kK - 1) / kK));
  check_launch("gemm_sm90");
}

}  // namespace flatshard::ptx_vm
