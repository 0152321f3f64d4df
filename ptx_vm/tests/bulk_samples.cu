// Samples for sm_90a: bulk copies, their mbarriers, and clusters.

#include <cstdint>

#include <cuda_runtime.h>

#include "ptx_vm/tests/bulk.cuh"
#include "ptx_vm/tests/device_array.h"
#include "ptx_vm/tests/samples.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kTile = 64, kTiles = 6, kStages = 2, kBlocks = 4, kCluster = 2;
constexpr unsigned kTileBytes = kTile * sizeof(float);

enum class Broken {
  none,
  bytes_too_small,
  bytes_too_large,
  producer_starts_at_0,
  init_not_fenced,
  read_without_wait,
  released_too_early,
  staging_rewritten,
  not_fenced,
  store_not_awaited,
  sums_of_floats,
  stray,
  exits_before_peer_reads,
  peer_read_too_early,
  arrives_before_cluster,
  mask_without_peer,
};

// y = 2 x: a warp that loads, and two that compute, over a ring of tiles in shared memory.
template <Broken B>
__global__ void __launch_bounds__(96) ring(float* y, const float* x) {
  __shared__ alignas(128) float tiles[kStages][kTile];
  __shared__ uint64_t full[kStages], empty[kStages];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  x += blockIdx.x * kTiles * kTile;
  y += blockIdx.x * kTiles * kTile;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init_barrier(&full[s], 1);
      init_barrier(&empty[s], 2);
    }
    if (B != Broken::init_not_fenced) fence_barrier_init();
  }
  __syncthreads();
  if (warp == 0) {
    if (lane > 0) return;
    for (int t = 0; t < kTiles; ++t) {
      const int s = t % kStages, round = t / kStages;
      const unsigned parity = (B == Broken::producer_starts_at_0 ? round : round + 1) & 1;
      wait(&empty[s], parity);  // finds: producer_starts_at_0 bytes_too_large
      const unsigned bytes = B == Broken::bytes_too_small   ? kTileBytes / 2
                             : B == Broken::bytes_too_large ? kTileBytes * 2
                                                            : kTileBytes;
      arrive_and_expect(&full[s], bytes);
      const float* from = x + t * kTile;
      bulk_load(tiles[s], from, kTileBytes, &full[s]);  // finds: init_not_fenced released_too_early stray
    }
    return;
  }
  for (int t = 0; t < kTiles; ++t) {
    const int s = t % kStages, i = threadIdx.x - 32;
    if (B == Broken::stray && t == kTiles - 1) break;
    if (B != Broken::read_without_wait) wait(&full[s], t / kStages & 1);
    if (B == Broken::released_too_early && lane == 0) arrive(&empty[s]);
    __syncwarp();
    const float value = tiles[s][i];  // finds: bytes_too_small read_without_wait released_too_early
    y[t * kTile + i] = 2.0f * value;
    __syncwarp();
    if (B != Broken::released_too_early && lane == 0) arrive(&empty[s]);
  }
}

// y = x + 1 through a staging buffer, and the maximum over all tiles, element by element.
template <Broken B>
__global__ void __launch_bounds__(kTile) staged(float* y, float* largest, const float* x) {
  __shared__ alignas(128) float staging[kTile];
  for (int t = 0; t < kTiles; ++t) {
    const int at = (blockIdx.x * kTiles + t) * kTile;
    staging[threadIdx.x] = x[at + threadIdx.x] + 1.0f;  // finds: staging_rewritten
    if (B != Broken::not_fenced) fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      float* to = y + at;
      bulk_store(to, staging, kTileBytes);  // finds: staging_rewritten store_not_awaited not_fenced
      if (B == Broken::sums_of_floats)
        bulk_add(largest, staging, kTileBytes);  // finds: sums_of_floats
      else
        bulk_max(largest, staging, kTileBytes);  // finds: staging_rewritten store_not_awaited not_fenced
      commit_stores();
      const bool is_last = t == kTiles - 1;
      if (B != Broken::staging_rewritten && !(B == Broken::store_not_awaited && is_last))
        wait_stores_read<0>();
    }
    __syncthreads();
  }
  if (B == Broken::staging_rewritten && threadIdx.x == 0) wait_stores<0>();
}

// y[cluster] = the sum of both blocks' values, which the first block reads from the other's shared memory.
template <Broken B>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(32)
    cluster_sums(float* y, const float* x) {
  __shared__ float value[32];
  value[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];  // finds: peer_read_too_early
  if (B != Broken::peer_read_too_early) cluster_arrive(), cluster_wait();
  if (cluster_rank() == 0) {
    float sum = 0.0f;
    for (unsigned rank = 0; rank < kCluster; ++rank) {
      const float part =
          load_from_block(value + threadIdx.x, rank);  // finds: exits_before_peer_reads peer_read_too_early
      sum += part;
    }
    y[blockIdx.x / kCluster * 32 + threadIdx.x] = sum;
  }
  if (B != Broken::exits_before_peer_reads) cluster_arrive(), cluster_wait();
}

// Each block waits until the other has arrived.
template <Broken B>
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(32) handshake(float* y) {
  __shared__ uint64_t come;
  if (threadIdx.x == 0) {
    init_barrier(&come, 1);
    fence_barrier_init();
  }
  __syncwarp();
  if (B != Broken::arrives_before_cluster) cluster_arrive_relaxed(), cluster_wait();
  if (threadIdx.x == 0) arrive_at_block(&come, cluster_rank() ^ 1);  // finds: arrives_before_cluster
  wait(&come, 0);
  y[blockIdx.x * 32 + threadIdx.x] = static_cast<float>(cluster_rank());
  cluster_arrive();
  cluster_wait();
}

// Both blocks of a cluster get the tile that the first one loads.
template <Broken B>
__global__ void __launch_bounds__(kTile) shared_tile(float* y, const float* x) {
  __shared__ alignas(128) float tile[kTile];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) {
    init_barrier(&full, 1);
    fence_barrier_init();
    arrive_and_expect(&full, kTileBytes);
  }
  __syncwarp();
  cluster_arrive();
  cluster_wait();
  constexpr unsigned short kMask = B == Broken::mask_without_peer ? 1 : 3;
  if (cluster_rank() == 0 && threadIdx.x == 0)
    multicast_load(tile, x + blockIdx.x / kCluster * kTile, kTileBytes, &full, kMask);
  wait(&full, 0);  // finds: mask_without_peer
  y[blockIdx.x * kTile + threadIdx.x] = tile[threadIdx.x];
  cluster_arrive();
  cluster_wait();
}

std::vector<float> input(int n) {
  std::vector<float> values(n);
  for (int i = 0; i < n; ++i) values[i] = static_cast<float>(i % 97);
  return values;
}

template <Broken B>
std::vector<float> run_ring() {
  const DeviceArray<float> x(input(kBlocks * kTiles * kTile)), y(x.size);
  ring<B><<<kBlocks, 96>>>(y.data, x.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_staged() {
  const DeviceArray<float> x(input(kBlocks * kTiles * kTile)), y(x.size),
      largest(std::vector<float>(kTile, 0.0f));
  staged<B><<<kBlocks, kTile>>>(y.data, largest.data, x.data);
  std::vector<float> all = y.values();
  const std::vector<float> most = largest.values();
  all.insert(all.end(), most.begin(), most.end());
  return all;
}

template <Broken B>
std::vector<float> run_cluster_sums() {
  const DeviceArray<float> x(input(kBlocks * 32)), y(x.size / kCluster);
  cluster_sums<B><<<kBlocks, 32>>>(y.data, x.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_handshake() {
  const DeviceArray<float> y(kBlocks * 32);
  handshake<B><<<kBlocks, 32>>>(y.data);
  return y.values();
}

// The cluster is an attribute of the launch here.
template <Broken B>
std::vector<float> run_shared_tile() {
  const DeviceArray<float> x(input(kBlocks / kCluster * kTile)), y(kBlocks * kTile);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(kBlocks);
  config.blockDim = dim3(kTile);
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, shared_tile<B>, y.data, static_cast<const float*>(x.data));
  return y.values();
}

}  // namespace

std::vector<Sample> correct_bulk_samples() {
  return {{"ring", {}, run_ring<Broken::none>},
          {"staged", {}, run_staged<Broken::none>},
          {"cluster_sums", {}, run_cluster_sums<Broken::none>},
          {"handshake", {}, run_handshake<Broken::none>},
          {"shared_tile", {}, run_shared_tile<Broken::none>}};
}

std::vector<Sample> broken_bulk_samples() {
  using enum FindingKind;
  return {
      {"bytes_too_small", {early_read}, run_ring<Broken::bytes_too_small>},
      {"bytes_too_large", {deadlock}, run_ring<Broken::bytes_too_large>},
      {"producer_starts_at_0", {deadlock}, run_ring<Broken::producer_starts_at_0>},
      {"init_not_fenced", {mbarrier_misuse}, run_ring<Broken::init_not_fenced>},
      {"read_without_wait", {early_read, uninitialised_read}, run_ring<Broken::read_without_wait>},
      {"released_too_early", {async_race, early_read}, run_ring<Broken::released_too_early>},
      {"staging_rewritten", {async_race}, run_staged<Broken::staging_rewritten>},
      {"not_fenced", {missing_proxy_fence}, run_staged<Broken::not_fenced>},
      {"store_not_awaited", {async_race}, run_staged<Broken::store_not_awaited>},
      {"sums_of_floats", {float_atomic}, run_staged<Broken::sums_of_floats>},
      {"stray", {async_race}, run_ring<Broken::stray>},
      {"exits_before_peer_reads", {cluster_exit}, run_cluster_sums<Broken::exits_before_peer_reads>},
      {"peer_read_too_early",
       {shared_race, uninitialised_read},
       run_cluster_sums<Broken::peer_read_too_early>},
      {"arrives_before_cluster", {mbarrier_misuse}, run_handshake<Broken::arrives_before_cluster>},
      {"mask_without_peer", {deadlock}, run_shared_tile<Broken::mask_without_peer>},
  };
}

}  // namespace flatshard::ptx_vm
