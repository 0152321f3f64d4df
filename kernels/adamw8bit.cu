// AdamW with 8-bit moments on the GPU, by the operations of the CPU kernel, so with the same bits. A warp
// updates a block of moments at a time, eight neighbouring elements a lane. Every lane has its own column of
// the decoding tables, in its own bank of shared memory. Codes are found by arithmetic (dynamic_code.h), with
// constants that shuffles read from the registers of a warp.
//
// Latency and the rate of instructions limit it. With 80 registers and 64 KiB of tables, three blocks of 256
// threads fit on an SM. Elements have no branch of their own, so that their operations overlap: a value near
// a midpoint, for which a comparison decides, is looked for pack by pack.

#include <algorithm>
#include <cfloat>

#include "kernels/adamw8bit.h"
#include "kernels/cuda_util.cuh"
#include "kernels/dynamic_code.h"
#include "kernels/optimizer_range.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kPerLane = kMomentBlock / kWarp;
constexpr int kPack = kPackSize<float>;
constexpr int64_t kMostBlocks = 3 * 132;  // three thread blocks for each SM of an H100 or H200
constexpr unsigned kAll = 0xffffffffu;

__device__ const auto kSignedOnDevice = kSignedPositions;
__device__ const auto kUnsignedOnDevice = kUnsignedPositions;
__device__ const DynamicTable kSignedTable = kSignedDynamicTable, kUnsignedTable = kUnsignedDynamicTable;

template <class G, class P>
struct Range : OptimizerRange<G, P> {
  uint8_t *m, *v;
  float *m_absmax, *v_absmax;
};

// The values of the codes of both tables, repeated for every lane.
struct Columns {
  float of_signed[256][kWarp], of_unsigned[256][kWarp];

  __device__ void fill() {
    for (int i = static_cast<int>(threadIdx.x); i < 256 * kWarp; i += kThreads) {
      of_signed[i / kWarp][i % kWarp] = kSignedTable[static_cast<size_t>(i / kWarp)];
      of_unsigned[i / kWarp][i % kWarp] = kUnsignedTable[static_cast<size_t>(i / kWarp)];
    }
  }
  __device__ float decode_signed(uint8_t code) const { return of_signed[code][threadIdx.x % kWarp]; }
  __device__ float decode_unsigned(uint8_t code) const { return of_unsigned[code][threadIdx.x % kWarp]; }
};

// The integer nearest to x, for 0 <= x < 2^22, in the lowest bits of the result's mantissa. It is faster than
// a conversion.
__device__ inline float nearest_of(float x) { return x + 0x1p23f; }

// Finds the positions of magnitudes. Lane i holds entry i of each table.
template <int kSize>
class Finder {
 public:
  __device__ explicit Finder(const DynamicPositions<kSize>& positions) : positions_(positions) {
    const int lane = threadIdx.x % kWarp;
    range_ = static_cast<int>(positions.range[lane]);
    bound_ = positions.bound[lane];
    scale_ = positions.scale[lane % 16];
    offset_ = positions.offset[lane % 16];
    last_ = positions.last[lane % 16];
  }

  // The position of a magnitude, or the one below it, in which case `near_midpoint` is set; otherwise that is
  // left as it is. Called by all lanes of a warp.
  __device__ int position_of(float a, bool& near_midpoint) const {
    const int binade = max(static_cast<int>(__float_as_uint(a) >> 23) - positions_.kLowestExponent, 0);
    const float bound = __shfl_sync(kAll, bound_, binade);
    const int range = __shfl_sync(kAll, range_, binade) + (a > bound ? 1 : 0);
    const float scale = __shfl_sync(kAll, scale_, range), offset = __shfl_sync(kAll, offset_, range);
    const float place = fminf(fmaf(a, scale, offset), __shfl_sync(kAll, last_, range));
    // The integer below the place, which is the nearest one to the place less a half.
    const float position = nearest_of(place - (0.5f + kUncertainty));
    near_midpoint |= position != nearest_of(place - (0.5f - kUncertainty));
    return static_cast<int>(__float_as_uint(position) & 0xffffu);
  }
  // The position of a magnitude, by a comparison with the midpoint above `position`, which is its position or
  // the one below it.
  __device__ int corrected(int position, float a) const {
    return position < positions_.kTop && a > positions_.middle[position] ? position + 1 : position;
  }

 private:
  const DynamicPositions<kSize>& positions_;
  int range_;
  float bound_, scale_, offset_, last_;
};

// The absmax that a block stores: 0 instead of a subnormal number, whose reciprocal could overflow.
__device__ inline float absmax_of(float largest) { return largest < FLT_MIN ? 0.0f : largest; }
__device__ inline float inverse_of(float absmax) { return absmax > 0.0f ? 1.0f / absmax : 0.0f; }

// The code of a position in the signed table.
__device__ inline uint8_t signed_code(float y, int position) {
  return static_cast<uint8_t>(kSignedZero + (y < 0.0f ? -max(min(position, 127), 1) : position));
}

// What finds codes and decodes them.
struct Codes {
  const Columns& columns;
  Finder<129> of_signed;
  Finder<256> of_unsigned;
};

// A block of 256 elements from `begin` on, in packs of N that belong to the lanes of a warp in turn.
template <int N, class G, class P>
struct Block {
  static constexpr int kPacks = kPerLane / N;
  const Range<G, P>& r;
  int64_t begin;

  __device__ int64_t at(int pack) const { return begin + (pack * kWarp + threadIdx.x % kWarp) * N; }
  __device__ bool has(int pack) const { return N > 1 || at(pack) < r.size; }

  __device__ void update(const AdamWCoefficients& c, float scale, const Codes& codes) const {
    const int64_t block = begin / kMomentBlock;
    const float m_absmax = r.m_absmax[block], v_absmax = r.v_absmax[block];
    Pack<float, N> p[kPacks];
    Pack<uint8_t, N> m_codes[kPacks]{}, v_codes[kPacks]{};
    Pack<G, N> g[kPacks]{};
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      p[k] = load<float, N>(r.p + at(k));
      m_codes[k] = load<uint8_t, N>(r.m + at(k));
      v_codes[k] = load<uint8_t, N>(r.v + at(k));
      g[k] = load<G, N>(r.g + at(k));
    }
    float m[kPerLane]{}, v[kPerLane]{}, largest_m = 0.0f, largest_v = 0.0f;
    for (int k = 0; k < kPacks; ++k) {
      if (!has(k)) continue;
      const int decayed = static_cast<int>(max(min(r.decay_end - at(k), int64_t{N}), int64_t{0}));
      for (int j = 0; j < N; ++j) {
        const float gradient = to_float(g[k].element[j]) * scale;
        const float shrink = j < decayed ? c.shrink : 0.0f;
        float &mean = m[k * N + j], &square = v[k * N + j], &value = p[k].element[j];
        mean = fmaf(c.beta1, codes.columns.decode_signed(m_codes[k].element[j]) * m_absmax,
                    c.one_minus_beta1 * gradient);
        square = fmaf(c.beta2, codes.columns.decode_unsigned(v_codes[k].element[j]) * v_absmax,
                      c.one_minus_beta2 * gradient * gradient);
        const bool is_finite = square <= FLT_MAX;
        const float updated =
            fmaf(c.rate, mean / fmaf(sqrtf(square), c.inverse_bias, c.eps), fmaf(shrink, value, value));
        value = is_finite ? updated : value;
        mean = is_finite ? mean : 0.0f;
        square = is_finite ? square : 0.0f;
        largest_m = fmaxf(largest_m, fabsf(mean));
        largest_v = fmaxf(largest_v, square);
      }
    }
    const float new_m_absmax = absmax_of(warp_max(largest_m)), m_inverse = inverse_of(new_m_absmax);
    const float new_v_absmax = absmax_of(warp_max(largest_v)), v_inverse = inverse_of(new_v_absmax);
    for (int k = 0; k < kPacks; ++k) {
      int m_positions[N], v_positions[N];
      bool near_midpoint = false;
      for (int j = 0; j < N; ++j) {
        float &mean = m[k * N + j], &square = v[k * N + j];
        mean *= m_inverse;
        square *= v_inverse;
        m_positions[j] = codes.of_signed.position_of(fabsf(mean), near_midpoint);
        v_positions[j] = codes.of_unsigned.position_of(square, near_midpoint);
      }
      if (near_midpoint)  // about one lane in 250
        for (int j = 0; j < N; ++j) {
          m_positions[j] = codes.of_signed.corrected(m_positions[j], fabsf(m[k * N + j]));
          v_positions[j] = codes.of_unsigned.corrected(v_positions[j], v[k * N + j]);
        }
      for (int j = 0; j < N; ++j) {
        m_codes[k].element[j] = signed_code(m[k * N + j], m_positions[j]);
        v_codes[k].element[j] = static_cast<uint8_t>(v_positions[j]);
      }
      if (!has(k)) continue;
      store<uint8_t, N>(r.m + at(k), m_codes[k]);
      store<uint8_t, N>(r.v + at(k), v_codes[k]);
      store<float, N>(r.p + at(k), p[k]);
    }
    if (r.copy)
      for (int k = 0; k < kPacks; ++k) {
        Pack<P, N> rounded;
        for (int j = 0; j < N; ++j) rounded.element[j] = from_float<P>(p[k].element[j]);
        if (has(k)) store_at_once<P, N>(r.copy + at(k), rounded);
      }
    __syncwarp();  // all lanes have read the old absmax
    if (threadIdx.x % kWarp != 0) return;
    r.m_absmax[block] = new_m_absmax;
    r.v_absmax[block] = new_v_absmax;
  }
};

// Single elements take more registers than packs.
template <int N, class G, class P>
__global__ void __launch_bounds__(kThreads, N > 1 ? 3 : 2)
    adamw8bit_kernel(Range<G, P> r, AdamWCoefficients c) {
  extern __shared__ float4 shared[];
  Columns& columns = *reinterpret_cast<Columns*>(shared);
  if (r.skip && *r.skip != 0) return;
  columns.fill();
  __syncthreads();
  const Codes codes{columns, Finder<129>(kSignedOnDevice), Finder<256>(kUnsignedOnDevice)};
  const float scale = *r.grad_scale;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps * kMomentBlock;
  for (int64_t begin = warp * kMomentBlock; begin < r.size; begin += stride)
    if (begin + kMomentBlock > r.size)
      Block<1, G, P>{r, begin}.update(c, scale, codes);
    else
      Block<N, G, P>{r, begin}.update(c, scale, codes);
}

template <int N, class G, class P>
void launch(Stream& stream, const Range<G, P>& r, const AdamWCoefficients& c) {
  const auto kernel = adamw8bit_kernel<N, G, P>;
  allow_shared_bytes(kernel, sizeof(Columns));
  const auto blocks = std::min<int64_t>(blocks_for(r.size, int64_t{kWarps} * kMomentBlock), kMostBlocks);
  kernel<<<static_cast<unsigned>(blocks), kThreads, sizeof(Columns), native(stream)>>>(r, c);
  check_launch(stream, "adamw8bit");
}

}  // namespace

void adamw8bit(Stream& stream, const OptimizerUpdate& a) {
  const AdamWCoefficients c(a);
  visit_optimizer(a, [&]<class G, class P>(const OptimizerRange<G, P>& range) {
    const OptimizerState& state = a.shard.state;
    const Range<G, P> r{range, state[0].as<uint8_t>(), state[1].as<uint8_t>(), state[2].as<float>(),
                        state[3].as<float>()};
    if (packable<float>(kMomentBlock, r.p, r.m, r.v, r.copy, r.g))
      launch<kPack>(stream, r, c);
    else
      launch<1>(stream, r, c);
  });
}

}  // namespace flatshard::cuda
