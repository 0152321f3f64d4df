// A product of one warpgroup, and mutations of it with one error; and warpgroups that exchange registers.

#include "ptx_vm/tests/device_array.h"
#include "ptx_vm/tests/samples.h"
#include "ptx_vm/tests/warpgroup.cuh"

namespace flatshard::ptx_vm {
namespace {

constexpr int kM = 64, kN = 64, kTile = SwizzledTile::kColumns, kTiles = 3, kK = kTile * kTiles,
              kThreads = 128;
constexpr int kBytesA = kM * kTile * 2, kBytesB = kN * kTile * 2, kStageBytes = kBytesA + kBytesB;
constexpr int kAlignment = 1024;  // of a tile with the 128-byte swizzle

enum class Broken {
  none,
  no_proxy_fence,
  proxy_fence_by_one,
  stage_released_early,
  read_before_wait,
  no_wgmma_fence,
  tile_at_512,
  base_not_aligned,
  too_many_registers,
  warp_keeps_registers,
};

// The terms of `rows` rows of x from `first` on, swizzled.
template <Broken B>
__device__ void copy_tile(unsigned char* tile, const uint16_t* x, int rows, int first) {
  for (int i = threadIdx.x; i < rows * kTile / 8; i += kThreads) {
    const int row = i / 8, chunk = i % 8;
    *reinterpret_cast<uint4*>(tile + SwizzledTile{0}.at(row, chunk)) =  // finds: stage_released_early
        *reinterpret_cast<const uint4*>(x + row * kK + first + chunk * 8);
  }
}

// The products of one tile; the first ones begin the sums.
__device__ void multiply_tile(float (&d)[kN / 2], uint32_t tile, bool adds) {
  for (int k = 0; k < kTile; k += 16) {
    const uint64_t a = descriptor(tile, k), b = descriptor(tile + kBytesA, k);
    const bool any = adds || k > 0;
    multiply(d, a, b, any);  // finds: no_proxy_fence proxy_fence_by_one stage_released_early
  }
}

// y (M, N) = a (M, K) b (N, K)^T. While a tile is multiplied, the next is copied.
template <Broken B>
__global__ void __launch_bounds__(kThreads) product(float* y, const uint16_t* a, const uint16_t* b) {
  extern __shared__ unsigned char shared[];
  const uint32_t begin = shared_address(shared);
  unsigned char* stages = shared + (B == Broken::base_not_aligned ? 0 : (0u - begin) % kAlignment);
  if (B == Broken::tile_at_512) stages += 512;
  float d[kN / 2] = {};
  for (int t = 0; t < kTiles; ++t) {
    unsigned char* stage = stages + t % 2 * kStageBytes;
    copy_tile<B>(stage, a, kM, t * kTile);
    copy_tile<B>(stage + kBytesA, b, kN, t * kTile);
    if (B != Broken::no_proxy_fence && (B != Broken::proxy_fence_by_one || threadIdx.x == 0))
      fence_proxy_async();
    __syncthreads();
    if (B != Broken::no_wgmma_fence) fence_products();
    multiply_tile(d, shared_address(stage), t > 0);  // finds: no_wgmma_fence tile_at_512 base_not_aligned
    commit_products();
    if (B != Broken::stage_released_early) wait_for_products<1>();
    __syncthreads();
  }
  if (B != Broken::read_before_wait) wait_for_products<0>();
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
  for (int v = 0; v < kN / 2; ++v)
    y[(row + v / 2 % 2 * 8) * kN + v / 4 * 8 + column + v % 2] = d[v];  // finds: read_before_wait
}

// Three warpgroups begin with 168 registers per thread; the first releases some for the others.
template <Broken B>
__global__ void __launch_bounds__(3 * kThreads, 1) traded(float* y) {
  if (threadIdx.x < kThreads) {
    if (B != Broken::warp_keeps_registers || threadIdx.x >= 32)
      give_registers<B == Broken::too_many_registers ? 32 : 24>();  // finds: warp_keeps_registers
  } else {
    take_registers<240>();  // finds: too_many_registers
  }
  y[threadIdx.x] = 1.0f;
}

// Small whole numbers: their sums are exact.
std::vector<uint16_t> numbers(int count, int step) {
  std::vector<uint16_t> all(count);
  for (int i = 0; i < count; ++i) {
    const float value = static_cast<float>(i * step % 13 - 6);
    all[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
  }
  return all;
}

template <Broken B>
std::vector<float> run_product() {
  const DeviceArray<uint16_t> a(numbers(kM * kK, 5)), b(numbers(kN * kK, 7));
  const DeviceArray<float> y(kM * kN);
  constexpr int kBytes = 2 * kStageBytes + kAlignment + 512;
  cudaFuncSetAttribute(product<B>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  product<B><<<1, kThreads, kBytes>>>(y.data, a.data, b.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_traded() {
  const DeviceArray<float> y(3 * kThreads);
  traded<B><<<1, 3 * kThreads>>>(y.data);
  return y.values();
}

}  // namespace

std::vector<Sample> correct_warpgroup_samples() {
  return {{"product of a warpgroup", {}, run_product<Broken::none>},
          {"traded", {}, run_traded<Broken::none>}};
}

std::vector<Sample> broken_warpgroup_samples() {
  using enum FindingKind;
  return {{"no_proxy_fence", {missing_proxy_fence}, run_product<Broken::no_proxy_fence>},
          {"proxy_fence_by_one", {missing_proxy_fence}, run_product<Broken::proxy_fence_by_one>},
          {"stage_released_early", {async_race}, run_product<Broken::stage_released_early>},
          {"read_before_wait", {in_flight_register}, run_product<Broken::read_before_wait>},
          {"no_wgmma_fence", {missing_wgmma_fence}, run_product<Broken::no_wgmma_fence>},
          {"tile_at_512", {matrix_descriptor}, run_product<Broken::tile_at_512>},
          {"base_not_aligned", {matrix_descriptor}, run_product<Broken::base_not_aligned>},
          {"too_many_registers", {register_pool}, run_traded<Broken::too_many_registers>},
          {"warp_keeps_registers", {divergent_warpgroup}, run_traded<Broken::warp_keeps_registers>}};
}

std::vector<float> expected_warpgroup_product() {
  const std::vector<uint16_t> a = numbers(kM * kK, 5), b = numbers(kN * kK, 7);
  const auto value = [](uint16_t bits) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
  };
  std::vector<float> y(kM * kN, 0.0f);
  for (int row = 0; row < kM; ++row)
    for (int column = 0; column < kN; ++column)
      for (int k = 0; k < kK; ++k) y[row * kN + column] += value(a[row * kK + k]) * value(b[column * kK + k]);
  return y;
}

}  // namespace flatshard::ptx_vm
