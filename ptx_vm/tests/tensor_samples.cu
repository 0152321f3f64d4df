// A matrix product on the tensor cores of sm_80, and mutations of it with one error. A block
// computes 64 x 64 elements, 64 terms at a time, and copies two such tiles ahead.

#include <utility>

#include "ptx_vm/tests/device_array.h"
#include "ptx_vm/tests/samples.h"
#include "ptx_vm/tests/tensor_cores.cuh"

namespace flatshard::ptx_vm {
namespace {

// Neither rows nor terms fill their last tile.
constexpr int kM = 70, kN = 128, kK = 200;
constexpr int kTile = SwizzledTile::kColumns, kTileBytes = kTile * SwizzledTile::kRowBytes;
constexpr int kThreads = 128, kStages = 3;

enum class Broken {
  none,
  a_registers_swapped,
  halves_swapped,
  not_transposed,
  row_off,
  no_wait,
  wait_off_by_one,
  no_barrier,
  no_zeros,
  part_of_warp,
  no_swizzle,
};

template <Broken B>
struct Tile : SwizzledTile {
  __device__ uint32_t at(int row, int chunk) const {
    if (B == Broken::no_swizzle) return begin + row * kRowBytes + chunk * 16;
    return SwizzledTile::at(row, chunk);
  }
};

// Starts to copy the part of x (rows, columns) from (row, column) on; missing elements become zero.
template <Broken B>
__device__ void copy_tile(const Tile<B>& to, const bf16* x, int rows, int columns, int row, int column) {
  for (int i = threadIdx.x; i < kTile * Tile<B>::kChunks; i += kThreads) {
    const int r = i / Tile<B>::kChunks, chunk = i % Tile<B>::kChunks;
    const bool exists = row + r < rows && column + chunk * Tile<B>::kChunk < columns;
    if (B == Broken::no_zeros && !exists) continue;
    const bf16* from = exists ? x + (row + r) * columns + column + chunk * Tile<B>::kChunk : x;
    copy_async(to.at(r, chunk), from, exists);  // finds: no_barrier
  }
}

// y (M, N) = a (M, K) b (K, N)
template <Broken B>
__global__ void __launch_bounds__(kThreads) product(bf16* y, const bf16* a, const bf16* b) {
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
  const auto tile = [&](int i) { return Tile<B>{shared_address(shared) + i * kTileBytes}; };
  const auto copy_stage = [&](int t) {
    const int stage = t % kStages;
    if (t * kTile < kK) {
      copy_tile<B>(tile(2 * stage), a, kM, kK, first_row, t * kTile);
      copy_tile<B>(tile(2 * stage + 1), b, kK, kN, t * kTile, first_column);
    }
    commit_copies();
  };
  float sums[kTile / 8][4] = {};
  for (int t = 0; t < kStages - 1; ++t) copy_stage(t);
  for (int t = 0; t * kTile < kK; ++t) {
    if (B != Broken::no_wait) wait_for_copies<B == Broken::wait_off_by_one ? kStages - 1 : kStages - 2>();
    if (B == Broken::no_barrier)
      __syncwarp();
    else
      __syncthreads();
    copy_stage(t + kStages - 1);
    const Tile<B> left = tile(t % kStages * 2), right = tile(t % kStages * 2 + 1);
    for (int k = 0; k < kTile / 16; ++k) {
      uint32_t of_a[4] = {};
      uint32_t row = left.at(warp * 16 + lane % 16, 2 * k + lane / 16);
      if (B == Broken::row_off) row += 8;
      if (B == Broken::part_of_warp) {
        if (lane < 16) load_pieces(of_a, row);  // finds: part_of_warp
      } else {
        load_pieces(of_a, row);  // finds: no_wait wait_off_by_one no_barrier no_zeros row_off no_swizzle
      }
      if (B == Broken::a_registers_swapped) std::swap(of_a[1], of_a[2]);
      for (int n = 0; n < kTile / 16; ++n) {
        uint32_t of_b[4];
        row = right.at(16 * k + lane % 16, 2 * n + lane / 16);
        if (B == Broken::not_transposed)
          load_pieces(of_b, row);
        else
          load_pieces_transposed(of_b, row);  // finds: no_barrier no_swizzle
        multiply_add(sums[2 * n], of_a, of_b[0], of_b[1]);
        multiply_add(sums[2 * n + 1], of_a, of_b[2], of_b[3]);
      }
    }
  }
  for (int n = 0; n < kTile / 8; ++n)
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + warp * 16 + half * 8 + lane / 4;
      float low = sums[n][2 * half], high = sums[n][2 * half + 1];
      if (B == Broken::halves_swapped) std::swap(low, high);
      uint32_t* to = reinterpret_cast<uint32_t*>(y + row * kN + first_column + 8 * n + lane % 4 * 2);
      if (row < kM) *to = pack(low, high);
    }
}

// Sums of up to 200 products of -1, 0 and 1, which bf16 holds.
float a_value(int row, int k) { return static_cast<float>((row * 5 + k * 3 + row * k) % 3) - 1.0f; }
float b_value(int k, int column) { return static_cast<float>((k + column * 2 + k * column / 5) % 3) - 1.0f; }

template <class Value>
std::vector<bf16> matrix(int rows, int columns, Value&& value) {
  std::vector<bf16> all;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) all.emplace_back(value(row, column));
  return all;
}

template <Broken B>
std::vector<float> run_product() {
  const DeviceArray<bf16> a(matrix(kM, kK, a_value)), b(matrix(kK, kN, b_value)), y(kM * kN);
  constexpr int kBytes = 2 * kStages * kTileBytes;
  const dim3 grid(kN / kTile, (kM + kTile - 1) / kTile);
  product<B><<<grid, kThreads, kBytes>>>(y.data, a.data, b.data);
  const std::vector<bf16> values = y.values();
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<float> expected_product() {
  std::vector<float> y;
  for (int row = 0; row < kM; ++row)
    for (int column = 0; column < kN; ++column) {
      float sum = 0.0f;
      for (int k = 0; k < kK; ++k) sum += a_value(row, k) * b_value(k, column);
      y.push_back(sum);
    }
  return y;
}

std::vector<Sample> correct_tensor_samples() { return {{"product", {}, run_product<Broken::none>}}; }

std::vector<Sample> broken_tensor_samples() {
  using enum FindingKind;
  return {
      {"a_registers_swapped", {}, run_product<Broken::a_registers_swapped>, run_product<Broken::none>},
      {"halves_swapped", {}, run_product<Broken::halves_swapped>, run_product<Broken::none>},
      {"not_transposed", {}, run_product<Broken::not_transposed>, run_product<Broken::none>},
      {"row_off", {misaligned_access}, run_product<Broken::row_off>},
      {"no_wait", {async_in_flight}, run_product<Broken::no_wait>},
      {"wait_off_by_one", {async_in_flight}, run_product<Broken::wait_off_by_one>},
      // Depending on the order of warps, the others' copies are not issued, not awaited, or not ordered.
      {"no_barrier", {uninitialised_read, async_in_flight, shared_race}, run_product<Broken::no_barrier>},
      {"no_zeros", {uninitialised_read}, run_product<Broken::no_zeros>},
      {"part_of_warp", {divergent_warp}, run_product<Broken::part_of_warp>},
  };
}

Sample product_without_swizzle() { return {"no_swizzle", {}, run_product<Broken::no_swizzle>}; }

}  // namespace flatshard::ptx_vm
