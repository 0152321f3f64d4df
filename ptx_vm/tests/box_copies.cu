#include <cuda.h>
#include <cuda_runtime.h>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/box_copies.h"
#include "ptx_vm/tests/bulk.cuh"
#include "ptx_vm/tests/device_array.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kThreads = 64;

struct At {
  int c[TensorMap::kMaxRank];
};

// One instruction for each rank: the number of coordinates is part of its form.
__device__ void issue_load(int rank, void* to, const void* map, const At& at, uint64_t* barrier) {
  const unsigned box = shared_address(to), full = shared_address(barrier);
  if (rank == 1)
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3}], "
        "[%2];" ::"r"(box),
        "l"(map), "r"(full), "r"(at.c[0])
        : "memory");
  if (rank == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
        "%4}], [%2];" ::"r"(box),
        "l"(map), "r"(full), "r"(at.c[0]), "r"(at.c[1])
        : "memory");
  if (rank == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
        "%4, %5}], [%2];" ::"r"(box),
        "l"(map), "r"(full), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2])
        : "memory");
  if (rank == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
        "%4, %5, %6}], [%2];" ::"r"(box),
        "l"(map), "r"(full), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3])
        : "memory");
  if (rank == 5)
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
        "%4, %5, %6, %7}], [%2];" ::"r"(box),
        "l"(map), "r"(full), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4])
        : "memory");
}

__device__ void issue_store(int rank, const void* from, const void* map, const At& at) {
  const unsigned box = shared_address(from);
  if (rank == 1)
    asm volatile("cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map),
                 "r"(box), "r"(at.c[0])
                 : "memory");
  if (rank == 2)
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(box), "r"(at.c[0]), "r"(at.c[1])
        : "memory");
  if (rank == 3)
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
        "r"(box), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2])
        : "memory");
  if (rank == 4)
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
        "r"(box), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3])
        : "memory");
  if (rank == 5)
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
            map),
        "r"(box), "r"(at.c[0]), "r"(at.c[1]), "r"(at.c[2]), "r"(at.c[3]), "r"(at.c[4])
        : "memory");
}

__device__ void issue_add(int rank, const void* from, const void* map, const At& at) {
  const unsigned box = shared_address(from);
  if (rank == 1)
    asm volatile(
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%0, {%2}], [%1];" ::"l"(map),
        "r"(box), "r"(at.c[0])
        : "memory");
  if (rank == 2)
    asm volatile(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
            map),
        "r"(box), "r"(at.c[0]), "r"(at.c[1])
        : "memory");
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
