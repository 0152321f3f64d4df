#include "kernels/adamw8bit.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "build_config.h"
#include "kernels/dynamic_encode.h"
#include "kernels/op.h"
#include "kernels/parallel_write.h"
#include "kernels/simd_math.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kBlocksPerTask = 32;

constexpr ByteTable kSignedBytes(kSignedDynamicTable), kUnsignedBytes(kUnsignedDynamicTable);
static_assert(kMomentBlock % kBytesWidth == 0);

// One moment of a block.
class Moment {
 public:
  Moment(const Tensor& codes, const Tensor& absmax, int64_t block)
      : codes_(codes.as<uint8_t>() + block * kMomentBlock),
        absmax_(absmax.as<float>() + block),
        n_(std::min(kMomentBlock, codes.size() - block * kMomentBlock)) {}

  // Decodes elements [i, i + 64). Elements past the block are arbitrary.
  std::array<Floats, 4> decode(int64_t i, const ByteTable& table) const {
    std::array<Floats, 4> values;
    if (i + kBytesWidth <= n_) {
      values = lookup_bytes(codes_ + i, table);
    } else {
      uint8_t rest[kBytesWidth]{};
      std::memcpy(rest, codes_ + i, static_cast<size_t>(n_ - i));
      values = lookup_bytes(rest, table);
    }
    for (Floats& v : values) v *= *absmax_;
    return values;
  }

  void store(int64_t i, Floats values) { simd::store(values_ + i, values); }

  // `largest` has the largest magnitude in one of its lanes.
  template <class Encoder>
  void encode(const Encoder& encoder, Floats largest) {
    float absmax = max(largest);
    if (absmax < std::numeric_limits<float>::min()) absmax = 0.0f;  // the reciprocal could overflow
    *absmax_ = absmax;
    const float inverse = absmax > 0.0f ? 1.0f / absmax : 0.0f;
    const Encoder in_registers = encoder;
    encode_values(
        codes_, n_, [&](int64_t i, auto lanes) { return load(values_ + i, lanes) * inverse; }, in_registers);
  }

 private:
  uint8_t* codes_;
  float* absmax_;
  int64_t n_;
  alignas(64) float values_[kMomentBlock];
};

struct Encoders {
  SignedEncoder of_m;
  UnsignedEncoder of_v;
};

template <class G, class P, class Output>
void update_block(const OptimizerUpdate& a, const AdamWCoefficients& c, const Encoders& encoders,
                  int64_t block, Output out) {
  const OptimizerShard& s = a.shard;
  const int64_t begin = block * kMomentBlock, n = std::min(kMomentBlock, s.p.size() - begin);
  Moment m(s.state[0], s.state[2], block), v(s.state[1], s.state[3], block);
  float* p = s.p.as<float>() + begin;
  const G* g = s.g.as<G>() + begin;
  P* copy = s.copy.empty() ? nullptr : s.copy.as<P>() + begin;
  const Floats beta1 = splat(c.beta1), beta2 = splat(c.beta2), eps = splat(c.eps);
  const Floats inverse_bias = splat(c.inverse_bias), rate = splat(c.rate);
  const Floats all = splat(c.shrink);
  const float scale = *a.grad_scale.as<float>();
  const int64_t decayed = std::clamp<int64_t>(s.decay_end - begin, 0, n);
  Floats largest_m{}, largest_v{};
  const auto update = [&](int64_t i, Floats old_m, Floats old_v, auto lanes) __attribute__((always_inline)) {
    const Floats gradient = load(g + i, lanes) * scale;
    const Floats mean = fma(beta1, old_m, c.one_minus_beta1 * gradient);
    const Floats square = fma(beta2, old_v, c.one_minus_beta2 * gradient * gradient);
    const Ints finite = square <= std::numeric_limits<float>::max();
    const Floats shrink = i + kWidth <= decayed ? all : keep_lanes(all, static_cast<int>(decayed - i), 0.0f);
    const Floats old = load(p + i, lanes), decay = fma(shrink, old, old);
    const Floats moved = fma(rate, mean / fma(sqrt(square), inverse_bias, eps), decay);
    const Floats updated = finite ? moved : old;
    const Floats new_m = keep_lanes(finite ? mean : Floats{}, lanes, 0.0f);
    const Floats new_v = keep_lanes(finite ? square : Floats{}, lanes, 0.0f);
    m.store(i, new_m);
    v.store(i, new_v);
    largest_m = max(largest_m, abs(new_m));
    largest_v = max(largest_v, abs(new_v));
    store(p + i, updated, lanes);
    if (copy) out.store(copy + i, updated, lanes);
  };
  for (int64_t i = 0; i < n; i += kBytesWidth) {
    const auto old_m = m.decode(i, kSignedBytes), old_v = v.decode(i, kUnsignedBytes);
    if (i + kBytesWidth <= n) {
      for (int k = 0; k < 4; ++k) update(i + k * kWidth, old_m[k], old_v[k], Full{});
    } else {
      for_each_vector(
          n - i, [&](int64_t j, auto lanes) { update(i + j, old_m[j / kWidth], old_v[j / kWidth], lanes); });
    }
  }
  m.encode(encoders.of_m, largest_m);
  v.encode(encoders.of_v, largest_v);
}

template <class G, class P>
void update_all(const OptimizerUpdate& a) {
  if (!a.skip.empty() && *a.skip.as<int32_t>() != 0) return;
  const AdamWCoefficients c(a);
  const Encoders encoders;
  const int64_t blocks = a.shard.state[2].size();
  parallel_write(a.shard.copy.bytes(), blocks, kBlocksPerTask, [&](int64_t begin, int64_t end, auto out) {
    for (int64_t block = begin; block < end; ++block) update_block<G, P>(a, c, encoders, block, out);
  });
}

}  // namespace
}  // namespace cpu

void adamw8bit(Stream& stream, const OptimizerUpdate& a) {
  const OptimizerShard& s = a.shard;
  check_adamw("adamw8bit", a,
              {{"m", DType::u8},
               {"v", DType::u8},
               {"m_absmax", DType::f32, kMomentBlock},
               {"v_absmax", DType::f32, kMomentBlock}});
  if (s.p.empty() || plans(stream, "adamw8bit", s.p, adamw_flops(a), min_bytes(s))) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::adamw8bit(stream, a);
  stream.run("adamw8bit", [a] {
    visit_float(a.shard.g.dtype, [&]<class G>() {
      visit_float(a.shard.copy.dtype, [&]<class P>() { cpu::update_all<G, P>(a); });
    });
  });
}

}  // namespace flatshard
