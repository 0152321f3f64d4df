// 4-bit quantization on the GPU, with the bits of the CPU kernels. Each operation is rounded by itself:
// __fmul_rn and __fadd_rn keep the compiler from fusing. Tables of sixteen entries are in shared memory, in
// different banks. All lanes read the 256 bounds of scales at once, and the 256 values of nested scales are
// distributed over the lanes of a warp.
//
// Memory bandwidth limits dequantization: the 2.56 bytes of an element of bf16, in blocks of 64 with scales
// in fp32, take 13 or 14 instructions of PTX, of a budget of 16 (flat.cuh). Instruction issue limits
// quantization, which runs once. With at most 32 registers, all 2048 threads of an SM are resident.

#include <algorithm>

#include "kernels/cuda_util.cuh"
#include "kernels/dynamic_table.h"
#include "kernels/four_bit.h"
#include "kernels/four_bit_buckets.h"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;

// Loads N elements at i, with zeros past `size`, by one access if kAligned and none is past.
template <bool kAligned, int N, class T>
__device__ inline Pack<float, N> load_floats(const T* x, int64_t i, int64_t size) {
  Pack<float, N> out;
  if (kAligned && i + N <= size) {
    const Pack<T, N> in = load<T, N>(x + i);
    for (int j = 0; j < N; ++j) out.element[j] = to_float(in.element[j]);
  } else {
    for (int j = 0; j < N; ++j) out.element[j] = i + j < size ? to_float(x[i + j]) : 0.0f;
  }
  return out;
}

// A block of a weight is quantized by `group` lanes of a warp, N consecutive elements each, in as many passes
// as it takes.
template <class T>
struct QuantizeArgs {
  uint8_t* codes;
  float* absmax;
  const T* x;
  int64_t size, block, blocks;
  int group_bits, kind;  // group = 2^group_bits
};

__constant__ const FourBitBuckets kBuckets[]{four_bit_buckets(FourBitKind::nf4),
                                             four_bit_buckets(FourBitKind::fp4)};

template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads) quantize_kernel(QuantizeArgs<T> a) {
  constexpr int N = kPackSize<T>;
  __shared__ float above[16];
  __shared__ int code[16];
  if (threadIdx.x < 15) above[threadIdx.x] = kBuckets[a.kind].above[threadIdx.x];
  if (threadIdx.x < 16) code[threadIdx.x] = kBuckets[a.kind].code[threadIdx.x];
  __syncthreads();

  const unsigned group = 1u << a.group_bits, lane = threadIdx.x & (group - 1);
  const int64_t block =
      blockIdx.x * static_cast<int64_t>(kThreads >> a.group_bits) + (threadIdx.x >> a.group_bits);
  const int64_t begin = block * a.block + lane * N, stride = static_cast<int64_t>(group) * N;
  const int64_t end =
      block < a.blocks ? (block + 1) * a.block : begin;  // all lanes take part in the shuffles
  float absmax = 0.0f;
  for (int64_t i = begin; i < end; i += stride) {
    const Pack<float, N> x = load_floats<kAligned, N>(a.x, i, a.size);
    for (int j = 0; j < N; ++j) absmax = fmaxf(absmax, fabsf(x.element[j]));
  }
  for (unsigned offset = group / 2; offset > 0; offset /= 2)
    absmax = fmaxf(absmax, __shfl_xor_sync(kAllLanes, absmax, offset));
  if (begin < end && lane == 0) a.absmax[block] = absmax;

  const BlockScale scale(absmax);
  const auto code_of = [&](float x) {
    const float y = __fmul_rn(__fmul_rn(x, scale.lift), scale.inverse);
    int index = y > above[7] ? 8 : 0;
    index += y > above[index + 3] ? 4 : 0;
    index += y > above[index + 1] ? 2 : 0;
    index += y > above[index] ? 1 : 0;
    return code[index];
  };
  for (int64_t i = begin; i < end && i < a.size; i += stride) {
    const Pack<float, N> x = load_floats<kAligned, N>(a.x, i, a.size);
    Pack<uint8_t, N / 2> out;
    for (int j = 0; j < N / 2; ++j)
      out.element[j] = static_cast<uint8_t>(code_of(x.element[2 * j]) << 4 | code_of(x.element[2 * j + 1]));
    if (kAligned && i + N <= a.size)
      store<uint8_t, N / 2>(a.codes + i / 2, out);
    else
      for (int j = 0; j < N / 2 && i + 2 * j < a.size; ++j) a.codes[i / 2 + j] = out.element[j];
  }
}

// One thread block; thread k is lane k of the sum.
__global__ void __launch_bounds__(kMeanLanes) mean_kernel(float* offset, const float* absmax, int64_t n) {
  __shared__ double lane[kMeanLanes];
  double sum = 0.0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < n; i += kMeanLanes) sum += static_cast<double>(absmax[i]);
  lane[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kMeanLanes / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) lane[threadIdx.x] += lane[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *offset = static_cast<float>(lane[0] / static_cast<double>(n));
}

__constant__ const DynamicMidpoints kMidpoints = midpoints(kSignedDynamicTable);

// A thread block quantizes a block of scales.
__global__ void __launch_bounds__(kNestedBlock)
    scales_kernel(uint8_t* codes, float* nested_absmax, const float* offset, const float* absmax, int64_t n) {
  const int64_t i = blockIdx.x * kNestedBlock + threadIdx.x;
  const float x = i < n ? absmax[i] - *offset : 0.0f;
  const float largest = block_max<kNestedBlock>(fabsf(x));
  if (threadIdx.x == 0) nested_absmax[blockIdx.x] = largest;
  if (i >= n) return;
  const BlockScale scale(largest);
  const float y = __fmul_rn(__fmul_rn(x, scale.lift), scale.inverse);
  int code = 0;
#pragma unroll
  for (int k = 0; k < 255; ++k) code += y > kMidpoints[k] ? 1 : 0;
  codes[i] = static_cast<uint8_t>(code);
}

// The parts of a FourBitMatrix; null if the matrix has no such part.
struct MatrixPointers {
  const uint8_t* codes;
  const float* absmax;  // scales of the blocks, or of the nested blocks
  const float* table;
  const uint8_t* scale_codes;
  const float *nested_table, *nested_offset;
  int block_bits;  // block size = 2^block_bits
};

// Writes the scales of blocks [first, first + count) into shared memory.
__device__ inline void load_scales(float* scales, const MatrixPointers& w, int64_t first, int count) {
  if (!w.scale_codes) {
    for (int k = threadIdx.x; k < count; k += kThreads) scales[k] = w.absmax[first + k];
    return;
  }
  const int lane = threadIdx.x % kWarp;
  int begin = threadIdx.x - lane;  // the same in all lanes of a warp, because all take part in the shuffles
  if (begin >= count) return;
  float table[256 / kWarp];  // entry 32 r + lane
  for (int r = 0; r < 256 / kWarp; ++r) table[r] = w.nested_table[r * kWarp + lane];
  const float offset = *w.nested_offset;
  for (; begin < count; begin += kThreads) {
    const int k = begin + lane;
    const int code = k < count ? w.scale_codes[first + k] : 0;
    float value = 0.0f;
    for (int r = 0; r < 256 / kWarp; ++r) {
      const float entry = __shfl_sync(kAllLanes, table[r], code % kWarp);
      if (code / kWarp == r) value = entry;
    }
    if (k < count) scales[k] = __fadd_rn(__fmul_rn(value, w.absmax[(first + k) / kNestedBlock]), offset);
  }
}

// Each thread of a thread block writes kPacks packs of N elements. Only N = 1 allows any range.
template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(T* y, PackedRows rows, MatrixPointers w, int64_t first, int64_t size) {
  constexpr int kPacks = 4, kStride = kThreads * N, kTile = kStride * kPacks;
  __shared__ float scales[kTile / kSmallestFourBitBlock + 2];
  __shared__ float table[16];
  const int64_t begin = blockIdx.x * static_cast<int64_t>(kTile);
  const int64_t end = begin + kTile < size ? begin + kTile : size;
  const int64_t first_block = (first + begin) >> w.block_bits;
  if (threadIdx.x < 16) table[threadIdx.x] = w.table[threadIdx.x];
  load_scales(scales, w, first_block,
              static_cast<int>(((first + end - 1) >> w.block_bits) - first_block + 1));
  __syncthreads();

  const auto scale_at = [&](int64_t i) { return scales[((first + i) >> w.block_bits) - first_block]; };
  const auto write_one = [&](int64_t i) {
    const int64_t at = first + i;
    const int byte = w.codes[at / 2], code = at % 2 == 0 ? byte >> 4 : byte & 15;
    y[rows.offset(i)] = from_float<T>(table[code] * scale_at(i));
  };
  for (int k = 0; k < kPacks; ++k) {
    const int64_t i = begin + k * kStride + static_cast<int64_t>(threadIdx.x) * N;
    if constexpr (N > 1)
      if (i + N <= size) {  // the pack is in one block, since `first` is a multiple of N
        const Pack<uint8_t, N / 2> codes = load<uint8_t, N / 2>(w.codes + (first + i) / 2);
        const float scale = scale_at(i);
        Pack<T, N> out;
        for (int j = 0; j < N / 2; ++j) {
          out.element[2 * j] = from_float<T>(table[codes.element[j] >> 4] * scale);
          out.element[2 * j + 1] = from_float<T>(table[codes.element[j] & 15] * scale);
        }
        store<T, N>(y + rows.offset(i), out);
        continue;
      }
    for (int j = 0; j < N && i + j < size; ++j) write_one(i + j);
  }
}

}  // namespace

void quantize_four_bit(Stream& stream, const QuantizeFourBit& a) {
  visit_float(a.x.dtype, [&]<class T>() {
    const auto group = static_cast<unsigned>(std::min<int64_t>(kWarp, a.block / kPackSize<T>));
    const QuantizeArgs<T> args{.codes = a.codes.as<uint8_t>(),
                               .absmax = a.absmax.as<float>(),
                               .x = a.x.as<T>(),
                               .size = a.x.size(),
                               .block = a.block,
                               .blocks = a.absmax.size(),
                               .group_bits = std::countr_zero(group),
                               .kind = static_cast<int>(a.kind)};
    const unsigned grid = blocks_for(args.blocks * group, kThreads);
    if (packable<T>(0, args.x, args.codes))
      quantize_kernel<T, true><<<grid, kThreads, 0, native(stream)>>>(args);
    else
      quantize_kernel<T, false><<<grid, kThreads, 0, native(stream)>>>(args);
  });
  check_launch(stream, "quantize_four_bit");
}

void quantize_scales(Stream& stream, const QuantizeScales& a) {
  float* offset = a.nested_offset.as<float>();
  const float* absmax = a.absmax.as<float>();
  const int64_t n = a.absmax.size();
  mean_kernel<<<1, kMeanLanes, 0, native(stream)>>>(offset, absmax, n);
  check_launch(stream, "quantize_scales: mean");
  scales_kernel<<<blocks_for(n, kNestedBlock), kNestedBlock, 0, native(stream)>>>(
      a.codes.as<uint8_t>(), a.nested_absmax.as<float>(), offset, absmax, n);
  check_launch(stream, "quantize_scales");
}

void dequantize_four_bit(Stream& stream, const DequantizeFourBit& a, int64_t y_stride) {
  const PackedRows rows{a.y.shape[-1], y_stride};
  const bool nested = a.w.is_nested();
  const MatrixPointers w{.codes = a.w.codes.as<uint8_t>(),
                         .absmax = nested ? a.w.nested_absmax.as<float>() : a.w.absmax.as<float>(),
                         .table = a.w.table.as<float>(),
                         .scale_codes = nested ? a.w.absmax.as<uint8_t>() : nullptr,
                         .nested_table = nested ? a.w.nested_table.as<float>() : nullptr,
                         .nested_offset = nested ? a.w.nested_offset.as<float>() : nullptr,
                         .block_bits = std::countr_zero(static_cast<uint64_t>(a.w.block))};
  visit_float(a.y.dtype, [&]<class T>() {
    constexpr int kPack = kPackSize<T>;
    constexpr int64_t kPacks = 4;
    const bool packs = rows.width == y_stride || (packable<T>(rows.width) && packable<T>(y_stride));
    if (packs && a.first % kPack == 0 && packable<T>(0, a.y.data, w.codes + a.first / 2))
      dequantize_kernel<T, kPack>
          <<<blocks_for(a.y.size(), kThreads * kPacks * kPack), kThreads, 0, native(stream)>>>(
              a.y.as<T>(), rows, w, a.first, a.y.size());
    else
      dequantize_kernel<T, 1><<<blocks_for(a.y.size(), kThreads * kPacks), kThreads, 0, native(stream)>>>(
          a.y.as<T>(), rows, w, a.first, a.y.size());
  });
  check_launch(stream, "dequantize_four_bit");
}

}  // namespace flatshard::cuda
