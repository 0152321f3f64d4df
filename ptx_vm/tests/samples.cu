#include <cstdint>

#include <cuda_runtime.h>

#include "ptx_vm/tests/device_array.h"
#include "ptx_vm/tests/samples.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kRowsPerBlock = 2, kBlocks = 6;
constexpr int kRows = kRowsPerBlock * kBlocks, kSize = kRows * kThreads;
constexpr unsigned kFull = 0xffffffffu;

enum class Broken {
  none,
  no_second_barrier,
  no_first_barrier,
  divergent_barrier,
  missing_warps,
  index_off_by_one,
  tail_not_masked,
  element_off,
  shuffle_in_branch,
  mask_without_self,
  no_warp_barrier,
  no_barrier_of_fours,
  no_barrier_after_heads,
  barrier_count,
  two_blocks_one_row,
  partials_too_early,
  colliding_lanes,
  too_much_shared,
  block_too_large,
  freed_too_early,
  flag_of_later_block,
  no_fence,
  float_atomics,
};

// y[row] = sum of row, two rows a block, through one array in shared memory.
template <Broken B>
__global__ void __launch_bounds__(kThreads) row_sums(float* y, const float* x) {
  __shared__ float scratch[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x < kWarps) scratch[threadIdx.x] = 0.0f;
  __syncthreads();
  for (int r = 0; r < kRowsPerBlock; ++r) {
    const int row = blockIdx.x * kRowsPerBlock + r;
    float value = x[row * kThreads + threadIdx.x];
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(kFull, value, offset);
    if constexpr (B != Broken::no_first_barrier) __syncthreads();
    if constexpr (B == Broken::divergent_barrier) {
      if (threadIdx.x < 40) __syncthreads();  // finds: divergent_barrier
    }
    const int slot = warp + (B == Broken::index_off_by_one ? 25 : 0);
    if (lane == 0) scratch[slot] = value;  // finds: no_first_barrier no_second_barrier index_off_by_one
    if constexpr (B != Broken::no_second_barrier) __syncthreads();
    float total = 0.0f;
    for (int i = 0; i < (B == Broken::missing_warps ? 32 : kWarps); ++i)
      total += scratch[i];  // finds: no_first_barrier no_second_barrier missing_warps
    if (threadIdx.x == 0) y[B == Broken::two_blocks_one_row ? r : row] = total;  // finds: two_blocks_one_row
  }
}

// y = 2 x, four elements a thread; the tail one by one.
template <Broken B>
__global__ void doubled(float* y, const float* x, int n) {
  const int i = 4 * (blockIdx.x * kThreads + threadIdx.x);
  if (i + 4 <= n || B == Broken::tail_not_masked) {
    const auto* from = reinterpret_cast<const float4*>(x + i + (B == Broken::element_off ? 1 : 0));
    float4 v = *from;  // finds: tail_not_masked element_off freed_too_early
    v.x *= 2.0f, v.y *= 2.0f, v.z *= 2.0f, v.w *= 2.0f;
    *reinterpret_cast<float4*>(y + i) = v;
  } else {
    for (int k = i; k < n; ++k) y[k] = 2.0f * x[k];  // finds: freed_too_early
  }
}

// y = x with neighbouring lanes exchanged: by shuffle, and then twice through shared memory.
template <Broken B>
__global__ void exchanged(float* y, const float* x) {
  __shared__ float tile[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x, lane = threadIdx.x % 32;
  float value = x[i];
  if constexpr (B == Broken::shuffle_in_branch) {
    if (lane < 16)
      value = __shfl_xor_sync(kFull, value, 1);  // finds: shuffle_in_branch
    else
      value *= 2.0f;
  } else {
    const unsigned mask = B == Broken::mask_without_self ? kFull << 1 : kFull;
    value = __shfl_xor_sync(mask, value, 1);  // finds: mask_without_self
  }
  tile[threadIdx.x] = value;  // finds: no_warp_barrier
  if constexpr (B != Broken::no_warp_barrier) __syncwarp();
  value = tile[threadIdx.x ^ 1];  // finds: no_warp_barrier
  __syncwarp();
  tile[threadIdx.x] = value;
  __syncwarp();
  y[B == Broken::colliding_lanes ? i & ~1 : i] = tile[threadIdx.x ^ 1];  // finds: colliding_lanes
}

// y = sums of four neighbours, which the first of their lanes reads at once; one warp a block.
template <Broken B>
__global__ void sums_of_four(float* y, const float* x) {
  __shared__ float4 tile[32 / 4];
  const int i = blockIdx.x * 32 + threadIdx.x;
  reinterpret_cast<float*>(tile)[threadIdx.x] = x[i];  // finds: no_barrier_of_fours
  if constexpr (B != Broken::no_barrier_of_fours) __syncwarp();
  if (i % 4 == 0) {
    const float4 four = tile[threadIdx.x / 4];  // finds: no_barrier_of_fours
    y[i / 4] = four.x + four.y + four.z + four.w;
  }
}

// y = x times one of its first four in its warp, which eight lanes read at once; one warp a block.
template <Broken B>
__global__ void times_heads(float* y, const float* x) {
  __shared__ float tile[32];
  const int i = blockIdx.x * 32 + threadIdx.x;
  tile[threadIdx.x] = x[i];
  __syncwarp();
  const float head = tile[threadIdx.x % 4];  // finds: no_barrier_after_heads
  if constexpr (B != Broken::no_barrier_after_heads) __syncwarp();
  tile[threadIdx.x] = head * x[i];  // finds: no_barrier_after_heads
  __syncwarp();
  y[i] = tile[threadIdx.x ^ 1];
}

// y = x, reversed within each block: the first half of its warps reads and hands over at a named barrier, the
// second writes.
template <Broken B>
__global__ void handed_over(float* y, const float* x) {
  __shared__ float tile[kThreads / 2];
  const int half = kThreads / 2;
  if (threadIdx.x < half) {
    tile[threadIdx.x] = x[blockIdx.x * half + threadIdx.x];
    asm volatile("bar.arrive 1, %0;" ::"n"(kThreads) : "memory");  // finds: barrier_count
  } else {
    constexpr int kMeet = B == Broken::barrier_count ? kThreads / 2 : kThreads;
    asm volatile("bar.sync 1, %0;" ::"n"(kMeet) : "memory");  // finds: barrier_count
    y[blockIdx.x * half + threadIdx.x - half] = tile[kThreads - 1 - threadIdx.x];
  }
}

// Every block writes its partial sum; the next launch adds them. Broken, the last block adds them in
// the same launch.
template <Broken B>
__global__ void partial_sums(float* partial, float* total, const float* x) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < kThreads; i += 32) sum += x[blockIdx.x * kThreads + i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(kFull, sum, offset);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;  // finds: partials_too_early
  if (B == Broken::partials_too_early && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
    float all = 0.0f;
    for (int b = 0; b < gridDim.x; ++b) all += partial[b];  // finds: partials_too_early
    *total = all;
  }
}

// Blocks in order, each after the previous one; broken: after the next one.
template <Broken B>
__global__ void in_a_row(float* order, int* flag) {
  const bool backwards = B == Broken::flag_of_later_block;
  const int turn = backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  while (atomicAdd(flag, 0) != turn) __nanosleep(20);  // finds: flag_of_later_block
  order[blockIdx.x] = static_cast<float>(turn);
  atomicAdd(flag, 1);
}

// Lane 0 waits for lane 1 of its own warp.
__global__ void lanes_in_a_row(float* y, int* flag) {
  if (threadIdx.x == 0)
    while (atomicAdd(flag, 0) == 0) __nanosleep(20);
  else
    atomicExch(flag, 1);
  y[threadIdx.x] = 1.0f;
}

// The last block to arrive adds the values that the others wrote before they arrived.
template <Broken B>
__global__ void last_block(float* y, float* partial, unsigned* come) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = static_cast<float>(blockIdx.x + 1);
    if constexpr (B != Broken::no_fence) __threadfence();
    is_last = atomicAdd(come, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  float sum = 0.0f;
  for (int b = 0; b < gridDim.x; ++b) sum += partial[b];  // finds: no_fence
  y[threadIdx.x] = sum;
}

// dw = the sum of x's rows / 10, row by row; broken, a block for each row adds its own.
template <Broken B>
__global__ void column_sums(float* dw, const float* x) {
  if constexpr (B == Broken::float_atomics) {
    atomicAdd(dw + threadIdx.x, 0.1f * x[blockIdx.x * kThreads + threadIdx.x]);  // finds: float_atomics
  } else {
    float sum = 0.0f;
    for (int r = 0; r < kRows; ++r) sum += 0.1f * x[r * kThreads + threadIdx.x];
    dw[threadIdx.x] = sum;
  }
}

// x[i] = i mod 97
struct Input : DeviceArray<float> {
  explicit Input(int n) : DeviceArray<float>(values_of(n)) {}
  static std::vector<float> values_of(int n) {
    std::vector<float> values(n);
    for (int i = 0; i < n; ++i) values[i] = static_cast<float>(i % 97);
    return values;
  }
};

template <Broken B>
std::vector<float> run_row_sums() {
  const Input x(kSize);
  const DeviceArray<float> y(kRows);
  row_sums<B><<<kBlocks, B == Broken::block_too_large ? 2 * kThreads : kThreads,
                B == Broken::too_much_shared ? 48 * 1024 : 0>>>(y.data, x.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_doubled() {
  const int n = kSize - 3;
  const Input x(n);
  const DeviceArray<float> y(n);
  if (B == Broken::freed_too_early) cudaFree(x.data);
  doubled<B><<<kSize / kThreads / 4, kThreads>>>(y.data, x.data, n);
  return y.values();
}

template <Broken B>
std::vector<float> run_exchanged() {
  const Input x(kSize);
  const DeviceArray<float> y(kSize);
  exchanged<B><<<kSize / kThreads, kThreads>>>(y.data, x.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_sums_of_four() {
  const Input x(kSize);
  const DeviceArray<float> y(kSize / 4);
  sums_of_four<B><<<kSize / 32, 32>>>(y.data, x.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_times_heads() {
  const Input x(kSize);
  const DeviceArray<float> y(kSize);
  times_heads<B><<<kSize / 32, 32>>>(y.data, x.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_handed_over() {
  const Input x(kSize / 2);
  const DeviceArray<float> y(kSize / 2);
  handed_over<B><<<kSize / kThreads, kThreads>>>(y.data, x.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_partial_sums() {
  const Input x(kSize);
  const DeviceArray<float> partial(kRows), total(1);
  partial_sums<B><<<kRows, 32>>>(partial.data, total.data, x.data);
  return partial.values();
}

template <Broken B>
std::vector<float> run_in_a_row() {
  const DeviceArray<float> order(8);
  const DeviceArray<int> flag(1);
  cudaMemset(flag.data, 0, sizeof(int));
  in_a_row<B><<<8, 1>>>(order.data, flag.data);
  return order.values();
}

std::vector<float> run_lanes_in_a_row() {
  const DeviceArray<float> y(2);
  const DeviceArray<int> flag(1);
  cudaMemset(flag.data, 0, sizeof(int));
  lanes_in_a_row<<<1, 2>>>(y.data, flag.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_last_block() {
  const DeviceArray<float> y(64), partial(7);
  const DeviceArray<unsigned> come(1);
  cudaMemset(come.data, 0, sizeof(unsigned));
  last_block<B><<<7, 64>>>(y.data, partial.data, come.data);
  return y.values();
}

template <Broken B>
std::vector<float> run_column_sums() {
  const Input x(kSize);
  const DeviceArray<float> dw(kThreads);
  cudaMemset(dw.data, 0, kThreads * sizeof(float));
  column_sums<B><<<B == Broken::float_atomics ? kRows : 1, kThreads>>>(dw.data, x.data);
  return dw.values();
}

}  // namespace

std::vector<Sample> correct_samples() {
  return {{"row_sums", {}, run_row_sums<Broken::none>},
          {"doubled", {}, run_doubled<Broken::none>},
          {"exchanged", {}, run_exchanged<Broken::none>},
          {"sums_of_four", {}, run_sums_of_four<Broken::none>},
          {"times_heads", {}, run_times_heads<Broken::none>},
          {"handed_over", {}, run_handed_over<Broken::none>},
          {"partial_sums", {}, run_partial_sums<Broken::none>},
          {"in_a_row", {}, run_in_a_row<Broken::none>},
          {"lanes_in_a_row", {}, run_lanes_in_a_row},
          {"last_block", {}, run_last_block<Broken::none>},
          {"column_sums", {}, run_column_sums<Broken::none>}};
}

std::vector<Sample> broken_samples() {
  using enum FindingKind;
  return {
      {"no_second_barrier", {shared_race}, run_row_sums<Broken::no_second_barrier>},
      {"no_first_barrier", {shared_race}, run_row_sums<Broken::no_first_barrier>},
      {"divergent_barrier", {divergent_barrier}, run_row_sums<Broken::divergent_barrier>},
      {"missing_warps", {uninitialised_read}, run_row_sums<Broken::missing_warps>},
      {"index_off_by_one", {out_of_bounds}, run_row_sums<Broken::index_off_by_one>},
      {"two_blocks_one_row", {global_race}, run_row_sums<Broken::two_blocks_one_row>},
      {"too_much_shared", {launch_limit}, run_row_sums<Broken::too_much_shared>},
      {"block_too_large", {launch_limit}, run_row_sums<Broken::block_too_large>},
      {"tail_not_masked", {out_of_bounds}, run_doubled<Broken::tail_not_masked>},
      {"element_off", {misaligned_access}, run_doubled<Broken::element_off>},
      {"freed_too_early", {use_after_free}, run_doubled<Broken::freed_too_early>},
      {"shuffle_in_branch", {shuffle_mask}, run_exchanged<Broken::shuffle_in_branch>},
      {"mask_without_self", {shuffle_mask}, run_exchanged<Broken::mask_without_self>},
      {"no_warp_barrier", {warp_race}, run_exchanged<Broken::no_warp_barrier>},
      {"no_barrier_of_fours", {warp_race}, run_sums_of_four<Broken::no_barrier_of_fours>},
      {"no_barrier_after_heads", {warp_race}, run_times_heads<Broken::no_barrier_after_heads>},
      {"colliding_lanes", {colliding_writes}, run_exchanged<Broken::colliding_lanes>},
      {"barrier_count", {barrier_count}, run_handed_over<Broken::barrier_count>},
      {"partials_too_early", {global_race, uninitialised_read}, run_partial_sums<Broken::partials_too_early>},
      {"flag_of_later_block", {deadlock}, run_in_a_row<Broken::flag_of_later_block>},
      {"no_fence", {global_race}, run_last_block<Broken::no_fence>},
      {"float_atomics", {float_atomic}, run_column_sums<Broken::float_atomics>}};
}

}  // namespace flatshard::ptx_vm
