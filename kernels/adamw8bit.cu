// AdamW with 8-bit moments on the GPU, by the operations of the CPU kernel, so with the same bits. A warp
// updates a block of moments at a time, eight neighbouring elements a lane. Every lane has its own column of
// the decoding tables, in its own bank of shared memory. Codes are found by arithmetic (dynamic_code.h), with
// constants that shuffles read from the registers of a warp.
//
// Instruction issue limits it on an H200, but not on an H100: the 18 bytes of an element take 150
// instructions, of a budget of 116 or 166 (flat.cuh). With 110 registers and 48 KiB of tables, two blocks of
// 256 threads fit on an SM.

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
constexpr int kBlocksPerWarp = 4;
constexpr unsigned kAll = 0xffffffffu;

__device__ const auto kSignedOnDevice = kSignedPositions;
__device__ const auto kUnsignedOnDevice = kUnsignedPositions;

template <class G, class P>
struct Range : OptimizerRange<G, P> {
  uint8_t *m, *v;
  float *m_absmax, *v_absmax;
};

// The magnitudes of a table, repeated for every lane, except the largest, which is 1: with it, the two tables
// would not fit.
template <int kCount>
struct Columns {
  float values[kCount][kWarp];

  __device__ void fill(const float* table) {
    for (int i = threadIdx.x; i < kCount * kWarp; i += kThreads)
      values[i / kWarp][i % kWarp] = table[i / kWarp];
  }
  __device__ float at(int position) const {
    return position < kCount ? values[position][threadIdx.x % kWarp] : 1.0f;
  }
};

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

  // Called by all lanes of a warp.
  __device__ int position_of(float a) const {
    const int binade = max(static_cast<int>(__float_as_uint(a) >> 23) - positions_.kLowestExponent, 0);
    const float bound = __shfl_sync(kAll, bound_, binade);
    const int range = __shfl_sync(kAll, range_, binade) + (a > bound ? 1 : 0);
    const float scale = __shfl_sync(kAll, scale_, range), offset = __shfl_sync(kAll, offset_, range);
    const float place = fminf(fmaf(a, scale, offset), __shfl_sync(kAll, last_, range));
    const int position = static_cast<int>(place - kUncertainty);
    if (position == static_cast<int>(place + kUncertainty)) return position;
    return position + (a > positions_.middle[position] ? 1 : 0);
  }

 private:
  const DynamicPositions<kSize>& positions_;
  int range_;
  float bound_, scale_, offset_, last_;
};

// The absmax that a block stores: 0 instead of a subnormal number, whose reciprocal could overflow.
__device__ inline float absmax_of(float largest) { return largest < FLT_MIN ? 0.0f : largest; }
__device__ inline float inverse_of(float absmax) { return absmax > 0.0f ? 1.0f / absmax : 0.0f; }

using SignedColumns = Columns<128>;
using UnsignedColumns = Columns<255>;

__device__ inline float decode(const SignedColumns& columns, uint8_t code) {
  const int offset = code - kSignedZero, magnitude = abs(offset);
  const float value = columns.at(magnitude);
  return offset < 0 ? -value : value;
}
__device__ inline float decode(const UnsignedColumns& columns, uint8_t code) { return columns.at(code); }

__device__ inline uint8_t encode(const Finder<129>& finder, float y) {
  const bool negative = y < 0.0f;
  const int position = finder.position_of(fabsf(y));
  return static_cast<uint8_t>(kSignedZero + (negative ? -max(min(position, 127), 1) : position));
}
__device__ inline uint8_t encode(const Finder<256>& finder, float y) {
  return static_cast<uint8_t>(finder.position_of(y));
}

// A block of 256 elements from `begin` on, in packs of N that belong to the lanes of a warp in turn.
template <int N, class G, class P>
struct Block {
  static constexpr int kPacks = kPerLane / N;
  const Range<G, P>& r;
  int64_t begin;

  __device__ int64_t at(int pack) const { return begin + (pack * kWarp + threadIdx.x % kWarp) * N; }
  __device__ bool has(int pack) const { return N > 1 || at(pack) < r.size; }

  __device__ void update(const AdamWCoefficients& c, float scale, const SignedColumns& signed_columns,
                         const UnsignedColumns& unsigned_columns, const Finder<129>& signed_finder,
                         const Finder<256>& unsigned_finder) const {
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
      for (int j = 0; j < N; ++j) {
        const float gradient = to_float(g[k].element[j]) * scale;
        const float shrink = at(k) + j < r.decay_end ? c.shrink : 0.0f;
        float &mean = m[k * N + j], &square = v[k * N + j], &value = p[k].element[j];
        mean = fmaf(c.beta1, decode(signed_columns, m_codes[k].element[j]) * m_absmax,
                    c.one_minus_beta1 * gradient);
        square = fmaf(c.beta2, decode(unsigned_columns, v_codes[k].element[j]) * v_absmax,
                      c.one_minus_beta2 * gradient * gradient);
        if (square <= FLT_MAX)
          value = fmaf(c.rate, mean / fmaf(sqrtf(square), c.inverse_bias, c.eps), fmaf(shrink, value, value));
        else
          mean = square = 0.0f;
        largest_m = fmaxf(largest_m, fabsf(mean));
        largest_v = fmaxf(largest_v, square);
      }
    }
    const float new_m_absmax = absmax_of(warp_max(largest_m)), m_inverse = inverse_of(new_m_absmax);
    const float new_v_absmax = absmax_of(warp_max(largest_v)), v_inverse = inverse_of(new_v_absmax);
    for (int k = 0; k < kPacks; ++k) {
      for (int j = 0; j < N; ++j) {
        m_codes[k].element[j] = encode(signed_finder, m[k * N + j] * m_inverse);
        v_codes[k].element[j] = encode(unsigned_finder, v[k * N + j] * v_inverse);
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

template <int N, class G, class P>
__global__ void __launch_bounds__(kThreads, 2) adamw8bit_kernel(Range<G, P> r, AdamWCoefficients c) {
  __shared__ SignedColumns signed_columns;
  __shared__ UnsignedColumns unsigned_columns;
  if (r.skip && *r.skip != 0) return;
  signed_columns.fill(kSignedOnDevice.magnitude);
  unsigned_columns.fill(kUnsignedOnDevice.magnitude);
  __syncthreads();
  const Finder<129> signed_finder(kSignedOnDevice);
  const Finder<256> unsigned_finder(kUnsignedOnDevice);
  const float scale = *r.grad_scale;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kBlocksPerWarp * kWarps + threadIdx.x / kWarp);
  for (int i = 0; i < kBlocksPerWarp; ++i) {
    const int64_t begin = (first + i * kWarps) * kMomentBlock;
    if (begin >= r.size) return;
    if (begin + kMomentBlock > r.size)
      return Block<1, G, P>{r, begin}.update(c, scale, signed_columns, unsigned_columns, signed_finder,
                                             unsigned_finder);
    Block<N, G, P>{r, begin}.update(c, scale, signed_columns, unsigned_columns, signed_finder,
                                    unsigned_finder);
  }
}

template <int N, class G, class P>
void launch(Stream& stream, const Range<G, P>& r, const AdamWCoefficients& c) {
  constexpr int64_t kElements = int64_t{kBlocksPerWarp} * kWarps * kMomentBlock;
  adamw8bit_kernel<N><<<blocks_for(r.size, kElements), kThreads, 0, native(stream)>>>(r, c);
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
