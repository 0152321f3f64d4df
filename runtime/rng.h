#pragma once
// Counter-based random numbers: a stream is identified by a seed, a purpose and a step, and its i-th number
// is a pure function of these and i, on the host and on a device. A shard therefore generates the same values
// as the full tensor, and a resumed run the same values as an uninterrupted one.
//
// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; 2011) turns a
// counter into four words:
//   key = mix(hash(purpose) ^ mix(seed))      counter = (index / 4, step)      bits(index) = word[index % 4]
// The hash and the counter layout never change: resumed runs depend on them.
//
// normal() uses only fma, sqrt and division (correctly rounded, as IEEE 754 requires), exact operations, and
// products that enter no sum outside an fma. A compiler that contracts products and sums therefore finds
// nothing to contract.

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

namespace flatshard {

struct RandomWords {
  uint32_t word[4];
};

constexpr RandomWords philox(RandomWords x, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xd2511f53u} * x.word[0], b = uint64_t{0xcd9e8d57u} * x.word[2];
    x = {{static_cast<uint32_t>(b >> 32) ^ x.word[1] ^ key0, static_cast<uint32_t>(b),
          static_cast<uint32_t>(a >> 32) ^ x.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return x;
}

struct NormalPair {
  float first, second;
};

// Two independent standard normal variates from two random words:
//   sqrt(-2 ln u) (cos, sin)(2 pi v)      u = (radius + 1/2) / 2^32 as a float, in (0, 1]; v = angle / 2^32
constexpr NormalPair box_muller(uint32_t radius, uint32_t angle) {
  // u = 2^e m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s), s = (m - 1) / (m + 1), as a series to s^9.
  const float u = std::fma(static_cast<float>(radius), 0x1p-32f, 0x1p-33f);
  const uint32_t bits = std::bit_cast<uint32_t>(u);
  const int32_t e = static_cast<int32_t>(bits - 0x3f3504f3u) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<uint32_t>(e) << 23));
  const float s = (m - 1.0f) / (m + 1.0f), s2 = s * s, twice = s + s;
  float series = std::fma(s2, 1.0f / 9, 1.0f / 7);
  series = std::fma(series, s2, 1.0f / 5);
  series = std::fma(series, s2, 1.0f / 3);
  const float ln_m = std::fma(twice * s2, series, twice);
  const float ln_u = std::fma(static_cast<float>(e), 0.693147181f, ln_m);
  const float r = std::sqrt(-2.0f * ln_u);

  // The angle is a number of quarter turns plus x, |x| <= pi / 4; sin(x) and cos(x) are Taylor series.
  const uint32_t quarter = (angle + 0x20000000u) >> 30;
  const float x = static_cast<float>(static_cast<int32_t>(angle - (quarter << 30))) * 1.46291808e-9f;
  const float x2 = x * x;
  float sine = std::fma(x2, 1.0f / 362880, -1.0f / 5040);
  sine = std::fma(sine, x2, 1.0f / 120);
  sine = std::fma(sine, x2, -1.0f / 6);
  sine = std::fma(x * x2, sine, x);
  float cosine = std::fma(x2, -1.0f / 3628800, 1.0f / 40320);
  cosine = std::fma(cosine, x2, -1.0f / 720);
  cosine = std::fma(cosine, x2, 1.0f / 24);
  cosine = std::fma(cosine, x2, -0.5f);
  cosine = std::fma(cosine, x2, 1.0f);
  const bool swapped = quarter & 1u;
  const uint32_t first = std::bit_cast<uint32_t>(swapped ? sine : cosine) ^ ((quarter + 1u) & 2u) << 30;
  const uint32_t second = std::bit_cast<uint32_t>(swapped ? cosine : sine) ^ (quarter & 2u) << 30;
  return {r * std::bit_cast<float>(first), r * std::bit_cast<float>(second)};
}

class RandomStream {
 public:
  constexpr RandomStream(uint64_t seed, std::string_view purpose, uint64_t step = 0)
      : key_(mix(hash(purpose) ^ mix(seed))), step_(step) {}

  constexpr uint32_t bits(int64_t index) const {
    const RandomWords w = words(index / 4);  // selected without indexing: GPU registers cannot be indexed
    return index & 2 ? (index & 1 ? w.word[3] : w.word[2]) : (index & 1 ? w.word[1] : w.word[0]);
  }
  // A multiple of 2^-24 in [0, 1).
  constexpr float uniform(int64_t index) const { return to_uniform(bits(index)); }
  // A normal variate with mean 0 and variance 1; its magnitude is at most 6.8.
  constexpr float normal(int64_t index) const {
    const RandomWords w = words(index / 4);
    const bool upper = index & 2;
    const NormalPair pair = box_muller(upper ? w.word[2] : w.word[0], upper ? w.word[3] : w.word[1]);
    return index & 1 ? pair.second : pair.first;
  }

  // out[i] = uniform(first + i) or normal(first + i), vectorized on the host.
  void fill_uniform(int64_t first, std::span<float> out) const;
  void fill_normal(int64_t first, std::span<float> out) const;

  // bits(4 * block) to bits(4 * block + 3)
  constexpr RandomWords words(int64_t block) const {
    const uint64_t b = static_cast<uint64_t>(block);
    return philox({{static_cast<uint32_t>(b), static_cast<uint32_t>(b >> 32), static_cast<uint32_t>(step_),
                    static_cast<uint32_t>(step_ >> 32)}},
                  static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
  }
  static constexpr float to_uniform(uint32_t word) {
    return static_cast<float>(static_cast<int32_t>(word >> 8)) * 0x1p-24f;
  }

 private:
  static constexpr uint64_t hash(std::string_view text) {  // FNV-1a
    uint64_t h = 0xcbf29ce484222325u;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return h;
  }
  static constexpr uint64_t mix(uint64_t z) {  // splitmix64
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  uint64_t key_, step_;
};

}  // namespace flatshard
