#pragma once
// Shared by the CUDA kernels: vector loads and stores with conversion to and from float, reductions over a
// warp and a block in a fixed order, and the check of a launch.

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/tanh_terms.h"
#include "runtime/cuda_check.h"
#include "runtime/dtype.h"
#include "runtime/stream.h"

namespace flatshard::cuda {

inline constexpr int kWarp = 32;

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(bf16 value) { return __bfloat162float(__ushort_as_bfloat16(value.bits)); }
__device__ inline float to_float(f16 value) { return __half2float(__ushort_as_half(value.bits)); }

template <class T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline bf16 from_float<bf16>(float value) {
  bf16 result;
  result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return result;
}
template <>
__device__ inline f16 from_float<f16>(float value) {
  f16 result;
  result.bits = __half_as_ushort(__float2half_rn(value));
  return result;
}

// `value` rounded to T and back.
template <class T>
__device__ inline float round_to(float value) {
  return to_float(from_float<T>(value));
}

// N elements of T loaded or stored by one access, at most 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T element[N];
};
template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

template <class T, int N>
__device__ inline Pack<T, N> load(const T* p) {
  return *reinterpret_cast<const Pack<T, N>*>(p);
}
template <class T, int N>
__device__ inline void store(T* p, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(p) = pack;
}

// Stores a pack by exactly one access; nvcc splits some plain stores of a Pack into elements.
template <class T, int N>
__device__ inline void store_at_once(T* p, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) == 16) {
    uint4 words;
    memcpy(&words, &pack, sizeof(words));
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(words.x), "r"(words.y),
                 "r"(words.z), "r"(words.w)
                 : "memory");
  } else if constexpr (sizeof(pack) == 8) {
    uint2 words;
    memcpy(&words, &pack, sizeof(words));
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(words.x), "r"(words.y) : "memory");
  } else {
    store<T, N>(p, pack);
  }
}

// N elements as fp32.
template <class T, int N>
struct Floats {
  float element[N];
};
template <class T, int N>
__device__ inline Floats<T, N> load_floats(const T* p) {
  constexpr int kPiece = N < kPackSize<T> ? N : kPackSize<T>;
  Floats<T, N> floats;
  for (int i = 0; i < N; i += kPiece) {
    const Pack<T, kPiece> piece = load<T, kPiece>(p + i);
    for (int k = 0; k < kPiece; ++k) floats.element[i + k] = to_float(piece.element[k]);
  }
  return floats;
}

// Returns whether rows of `row` elements and all pointers allow kPackSize<T> elements per access.
template <class T, class... Pointers>
bool packable(int64_t row, Pointers... pointers) {
  return row % kPackSize<T> == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

// Rows of `width` elements that begin `stride` elements apart. A division by the width takes tens of
// instructions and registers, so it is a product with `inverse`, 2^63 / width rounded up: exact for fewer
// than 2^63 / width elements.
struct PackedRows {
  PackedRows(int64_t row_width, int64_t row_stride)
      : width(row_width),
        stride(row_stride),
        inverse(((uint64_t{1} << 63) - 1) / static_cast<uint64_t>(row_width) + 1) {}

  __device__ int64_t row(int64_t i) const {
    return static_cast<int64_t>(__umul64hi(2 * static_cast<uint64_t>(i), inverse));
  }
  // The offset in memory of element i, which is counted over all rows.
  __device__ int64_t offset(int64_t i) const { return width == stride ? i : i + row(i) * (stride - width); }

  int64_t width, stride;
  uint64_t inverse;
};

// Checks a condition on device data, such as the range of a token. On failure the kernel traps, and the host
// reports an Error at its next wait.
__device__ inline void require(bool condition) {
  if (!condition) __trap();
}

// The sum over a warp, or over each group of kLanes of its lanes, in every lane, by a fixed tree.
template <int kLanes = kWarp>
__device__ inline float warp_sum(float value) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
__device__ inline float warp_max(float value) {  // ignores NaN
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// The sum over a block of kThreads threads, in every thread. Adds the sums of the warps in order.
template <int kThreads>
__device__ inline float block_sum(float value) {
  static_assert(kThreads % kWarp == 0);
  __shared__ float warps[kThreads / kWarp];
  value = warp_sum(value);
  __syncthreads();  // the array may still be read by the caller's previous sum
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  float total = 0.0f;
  for (int i = 0; i < kThreads / kWarp; ++i) total += warps[i];
  return total;
}

// The maximum over a block of kThreads threads, ignoring NaN, in every thread.
template <int kThreads>
__device__ inline float block_max(float value) {
  static_assert(kThreads % kWarp == 0);
  __shared__ float warps[kThreads / kWarp];
  value = warp_max(value);
  __syncthreads();  // the array may still be read by the caller's previous maximum
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  for (int i = 0; i < kThreads / kWarp; ++i) value = fmaxf(value, warps[i]);
  return value;
}

// 1 / (1 + e^-x) within a few units in the last place.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

// tanh x, computed without a branch because kernels unroll it many times.
__device__ inline float tanh_of(float x) {
  const float size = fabsf(x), square = x * x;
  float p = fmaf(kTanh11, square, kTanh9);
  p = fmaf(p, square, kTanh7);
  p = fmaf(p, square, kTanh5);
  p = fmaf(p, square, kTanh3);
  const float near = fmaf(p * square, x, x), far = 1.0f - __fdividef(2.0f, __expf(size + size) + 1.0f);
  // Selects by bits: the compiler would turn a conditional expression into a branch.
  const unsigned chosen = size < kTanhNear ? 0xffffffffu : 0u;
  return __uint_as_float((__float_as_uint(near) & chosen) | (__float_as_uint(copysignf(far, x)) & ~chosen));
}

inline cudaStream_t native(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

// The number of thread blocks for n elements, `each` a block.
inline unsigned blocks_for(int64_t n, int64_t each) { return static_cast<unsigned>((n + each - 1) / each); }

// Allows a kernel this much dynamic shared memory; with more than 48 KiB in all it must be called before.
template <class... Arguments>
void allow_shared_bytes(void (*kernel)(Arguments...), int bytes) {
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
             "cudaFuncSetAttribute");
}

// Throws an Error if the launch failed; follows every <<<...>>>.
inline void check_launch(const Stream& stream, const char* kernel,
                         std::source_location where = std::source_location::current()) {
  cuda_check(cudaGetLastError(), kernel, where);
  stream.launched();
}

}  // namespace flatshard::cuda
