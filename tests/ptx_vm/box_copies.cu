#include <cuda.h>
#include <cuda_runtime.h>

#include "tests/ptx_vm/box_copies.h"
#include "tests/ptx_vm/bulk.cuh"
#include "tests/ptx_vm/device_array.h"
#include "tests/ptx_vm/ptx_vm.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kThreads = 64;

struct At {
  int c[TensorMap::kMaxRank];
};

#define LOAD(rank, coordinates)                                                                       \
  "cp.async.bulk.tensor." rank                                                                        \
  ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" coordinates                \
  "}], [%2];" ::"r"(shared_address(to)),                                                              \
      "l"(map), "r"(shared_address(barrier)), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), \
      "r"(at.c[4]) : "memory"

__device__ void issue_load(int rank, void* to, const void* map, const At& at, uint64_t* barrier) {
  if (rank == 1) asm volatile(LOAD("1d", "%3"));
  if (rank == 2) asm volatile(LOAD("2d", "%3, %4"));
  if (rank == 3) asm volatile(LOAD("3d", "%3, %4, %5"));
  if (rank == 4) asm volatile(LOAD("4d", "%3, %4, %5, %6"));
  if (rank == 5) asm volatile(LOAD("5d", "%3, %4, %5, %6, %7"));
}

#define STORE(opcode, rank, coordinates)                                                              \
  opcode ".tensor." rank coordinates "}], [%1];" ::"l"(map), "r"(shared_address(from)), "r"(at.c[0]), \
      "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4]) : "memory"
#define COPY(rank, coordinates) \
  STORE("cp.async.bulk", rank, ".global.shared::cta.tile.bulk_group [%0, {" coordinates)
#define ADD(rank, coordinates) \
  STORE("cp.reduce.async.bulk", rank, ".global.shared::cta.add.tile.bulk_group [%0, {" coordinates)

__device__ void issue_store(int rank, const void* from, const void* map, const At& at) {
  if (rank == 1) asm volatile(COPY("1d", "%2"));
  if (rank == 2) asm volatile(COPY("2d", "%2, %3"));
  if (rank == 3) asm volatile(COPY("3d", "%2, %3, %4"));
  if (rank == 4) asm volatile(COPY("4d", "%2, %3, %4, %5"));
  if (rank == 5) asm volatile(COPY("5d", "%2, %3, %4, %5, %6"));
}

__device__ void issue_add(int rank, const void* from, const void* map, const At& at) {
  if (rank == 1) asm volatile(ADD("1d", "%2"));
  if (rank == 2) asm volatile(ADD("2d", "%2, %3"));
}

__global__ void load(unsigned char* out, const __grid_constant__ CUtensorMap map, At at, int rank,
                     unsigned box_bytes, unsigned bytes) {
  extern __shared__ __align__(1024) unsigned char box[];
  __shared__ uint64_t full;
  for (unsigned i = threadIdx.x; i < bytes; i += kThreads) box[i] = 0xff;
  if (threadIdx.x == 0) {
    init_barrier(&full, 1);
    fence_barrier_init();
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  }
  fence_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrive_and_expect(&full, box_bytes);
    issue_load(rank, box, &map, at, &full);
  }
  wait(&full, 0);
  for (unsigned i = threadIdx.x; i < bytes; i += kThreads) out[i] = box[i];
}

__global__ void store(const unsigned char* in, const __grid_constant__ CUtensorMap map, At at, int rank,
                      unsigned bytes, bool adds) {
  extern __shared__ __align__(1024) unsigned char box[];
  for (unsigned i = threadIdx.x; i < bytes; i += kThreads) box[i] = in[i];
  fence_async();
  __syncthreads();
  if (threadIdx.x > 0) return;
  if (adds)
    issue_add(rank, box, &map, at);
  else
    issue_store(rank, box, &map, at);
  commit_stores();
  wait_stores_read<0>();
}

using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                            const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                            CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

CUresult encode(const TensorMap& m, CUtensorMap* map) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (found != cudaDriverEntryPointSuccess) return CUDA_ERROR_NOT_FOUND;
  cuuint64_t extents[TensorMap::kMaxRank], strides[TensorMap::kMaxRank];
  cuuint32_t box[TensorMap::kMaxRank], ones[TensorMap::kMaxRank];
  for (uint32_t d = 0; d < TensorMap::kMaxRank; ++d) {
    extents[d] = m.extent[d];
    if (d > 0) strides[d - 1] = m.stride[d];
    box[d] = m.box[d];
    ones[d] = 1;
  }
  return reinterpret_cast<Encode>(function)(
      map, static_cast<CUtensorMapDataType>(m.element), m.rank, reinterpret_cast<void*>(m.base), extents,
      strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(m.swizzle),
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

At coordinates(const Coordinates& at) {
  At result;
  for (uint32_t d = 0; d < TensorMap::kMaxRank; ++d) result.c[d] = at[d];
  return result;
}

}  // namespace

std::string encode_error(const TensorMap& map) {
  CUtensorMap encoded;
  const bool is_right = encode(map, &encoded) == CUDA_SUCCESS;
  return is_right ? "" : tensor_map_error();
}

std::vector<unsigned char> load_box(const TensorMap& map, const Coordinates& at, uint32_t bytes) {
  CUtensorMap encoded;
  if (encode(map, &encoded) != CUDA_SUCCESS) return {};
  const DeviceArray<unsigned char> out(bytes);
  load<<<1, kThreads, bytes>>>(out.data, encoded, coordinates(at), static_cast<int>(map.rank),
                               map.box_bytes(), bytes);
  return out.values();
}

void store_box(const TensorMap& map, const Coordinates& at, const std::vector<unsigned char>& shared,
               Store how) {
  CUtensorMap encoded;
  if (encode(map, &encoded) != CUDA_SUCCESS) return;
  const DeviceArray<unsigned char> in(shared);
  const auto bytes = static_cast<unsigned>(shared.size());
  store<<<1, kThreads, bytes>>>(in.data, encoded, coordinates(at), static_cast<int>(map.rank), bytes,
                                how == Store::add);
  cudaDeviceSynchronize();
}

void load_with_wrong_rank(const TensorMap& map) {
  CUtensorMap encoded;
  encode(map, &encoded);
  const DeviceArray<unsigned char> out(map.box_bytes());
  load<<<1, kThreads, map.box_bytes()>>>(out.data, encoded, At{}, static_cast<int>(map.rank) % 5 + 1,
                                         map.box_bytes(), map.box_bytes());
}

void load_without_map() {
  const DeviceArray<unsigned char> out(64);
  load<<<1, kThreads, 64>>>(out.data, CUtensorMap{}, At{}, 1, 64, 64);
}

}  // namespace flatshard::ptx_vm
