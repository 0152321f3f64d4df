#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/simd_math.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::simd;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// |got - expected| in units in the last place of the float nearest to `expected`.
double units(float got, double expected) {
  int exponent = 0;
  std::frexp(expected, &exponent);
  return std::abs(got - expected) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// The largest error of f over a sweep through all exponents of both signs. Subnormal results may be zero; a
// result above the largest float must be infinite.
template <class Vectorized, class Reference>
double worst_units(Vectorized f, Reference reference) {
  double worst = 0;
  for (uint64_t first = 0; first <= UINT32_MAX; first += 16 * 619) {
    float in[kWidth], out[kWidth];
    for (int i = 0; i < kWidth; ++i) in[i] = std::bit_cast<float>(static_cast<uint32_t>(first) + i * 619u);
    store(out, f(load(in)));
    for (int i = 0; i < kWidth; ++i) {
      if (std::isnan(in[i])) {
        if (!std::isnan(out[i])) return kInf;
        continue;
      }
      const double expected = reference(static_cast<double>(in[i]));
      if (out[i] == static_cast<float>(expected)) continue;
      if (std::abs(expected) < 0x1p-126 && std::abs(out[i]) <= 0x1p-126f) continue;
      worst = std::max(worst, std::isfinite(out[i]) ? units(out[i], expected) : kInf);
    }
  }
  return worst;
}

// Evaluates f for a few values in every lane, with other values in the other lanes.
template <class Vectorized>
bool every_lane_is_equal(Vectorized f) {
  for (const float value : {-2.5f, -0.7f, 0.0f, 1e-3f, 0.9f, 17.0f}) {
    const float alone = f(splat(value))[0];
    for (int lane = 0; lane < kWidth; ++lane) {
      Floats mixed = splat(kNaN);
      mixed[lane] = value;
      if (f(mixed)[lane] != alone) return false;
    }
  }
  return true;
}

template <class T>
int count_widening_differences() {
  int wrong = 0;
  for (int bits = 0; bits < 65536; bits += kWidth) {
    T in[kWidth];
    for (int i = 0; i < kWidth; ++i) in[i].bits = static_cast<uint16_t>(bits + i);
    const Floats wide = load(in);
    for (int i = 0; i < kWidth; ++i)
      wrong += std::bit_cast<uint32_t>(static_cast<float>(wide[i])) !=
               std::bit_cast<uint32_t>(static_cast<float>(in[i]));
  }
  return wrong;
}

// Sweeps through all floats, and the neighborhood of each number of T and of each tie between two numbers.
template <class T>
int count_narrowing_differences(uint32_t half_unit) {
  int wrong = 0;
  const auto try_floats = [&](const float* in) {
    T out[kWidth];
    store(out, load(in));
    for (int i = 0; i < kWidth; ++i) wrong += out[i].bits != T(in[i]).bits;
  };
  float in[kWidth];
  for (uint64_t first = 0; first <= UINT32_MAX; first += kWidth * 1021) {
    for (int i = 0; i < kWidth; ++i) in[i] = std::bit_cast<float>(static_cast<uint32_t>(first) + i * 1021u);
    try_floats(in);
  }
  for (int bits = 0; bits < 65536; ++bits) {
    const T centre = std::bit_cast<T>(static_cast<uint16_t>(bits));
    const uint32_t wide = std::bit_cast<uint32_t>(static_cast<float>(centre));
    for (int i = 0; i < kWidth; ++i)
      in[i] = std::bit_cast<float>(wide + (i / 8) * half_unit + static_cast<uint32_t>(i % 8) - 4);
    try_floats(in);
  }
  return wrong;
}

}  // namespace

TEST_CASE("simd exp is within 1.2 units in the last place of e^x") {
  CHECK(worst_units([](Floats x) { return simd::exp(x); }, [](double x) { return std::exp(x); }) <= 1.2);
}

TEST_CASE("simd sigmoid is within 3 units in the last place") {
  CHECK(worst_units([](Floats x) { return sigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }) <=
        3.0);
}

TEST_CASE("simd tanh is within 3 units in the last place") {
  CHECK(worst_units([](Floats x) { return simd::tanh(x); }, [](double x) { return std::tanh(x); }) <= 3.0);
}

TEST_CASE("simd functions of infinities are their limits") {
  CHECK(simd::exp(splat(kInf))[3] == kInf);
  CHECK(simd::exp(splat(-kInf))[3] == 0.0f);
  CHECK(sigmoid(splat(kInf))[3] == 1.0f);
  CHECK(sigmoid(splat(-kInf))[3] == 0.0f);
  CHECK(simd::tanh(splat(kInf))[3] == 1.0f);
  CHECK(simd::tanh(splat(-kInf))[3] == -1.0f);
}

TEST_CASE("simd exp covers the range of normal floats and returns no subnormals") {
  CHECK(simd::exp(splat(-87.3365402f))[0] >= 0x1p-126f);
  CHECK(simd::exp(splat(-87.3365479f))[0] == 0.0f);
  CHECK(std::isfinite(static_cast<float>(simd::exp(splat(88.7228317f))[0])));
  CHECK(simd::exp(splat(88.722847f))[0] == kInf);
}

TEST_CASE("every lane of a simd function gives the same bits whatever the others hold") {
  CHECK(every_lane_is_equal([](Floats x) { return simd::exp(x); }));
  CHECK(every_lane_is_equal([](Floats x) { return sigmoid(x); }));
  CHECK(every_lane_is_equal([](Floats x) { return simd::tanh(x); }));
}

TEST_CASE("simd widens every bf16 and f16 pattern to the bits of the scalar types") {
  CHECK(count_widening_differences<bf16>() == 0);
  CHECK(count_widening_differences<f16>() == 0);
}

TEST_CASE("simd narrows floats to the bits of the scalar types: ties, subnormals, overflow, NaN") {
  CHECK(count_narrowing_differences<bf16>(1u << 15) == 0);
  CHECK(count_narrowing_differences<f16>(1u << 12) == 0);
}

TEST_CASE(
    "larger_magnitude has the larger magnitude and the sign of its first argument, also for zeros and NaN") {
  const float denormal = std::numeric_limits<float>::denorm_min();
  const std::vector<float> values{0.0f, -0.0f, denormal, -denormal, 0.5f, -0.5f,
                                  3.0f, kInf,  -kInf,    kNaN,      -kNaN};
  for (const float a : values)
    for (const float b : values) {
      if (std::isnan(b)) continue;
      const float larger = std::isnan(a) ? std::abs(b) : std::max(std::abs(a), std::abs(b));
      const float got = larger_magnitude(splat(a), splat(b))[3];
      REQUIRE(std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(std::copysign(larger, a)));
    }
}

TEST_CASE("simd tails read zeros past the end and write nothing there") {
  for (int lanes = 1; lanes < kWidth; ++lanes) {
    const std::vector<bf16> in(static_cast<size_t>(lanes), bf16(2.0f));  // no space to overrun into
    const Floats v = load(in.data(), lanes);
    for (int i = 0; i < kWidth; ++i) CHECK(v[i] == (i < lanes ? 2.0f : 0.0f));
    float out[kWidth] = {};
    store(out, splat(3.0f), lanes);
    for (int i = 0; i < kWidth; ++i) CHECK(out[i] == (i < lanes ? 3.0f : 0.0f));
    CHECK(sum(keep_lanes(splat(1.0f), lanes, 0.0f)) == static_cast<float>(lanes));
    CHECK(max(keep_lanes(splat(-1.0f), lanes, -kInf)) == -1.0f);
  }
}

TEST_CASE("for_each_vector visits every element once") {
  for (const int64_t n : {0, 1, 15, 16, 17, 40}) {
    std::vector<int> met(static_cast<size_t>(n));
    for_each_vector(n, [&](int64_t i, auto lanes) {
      for (int k = 0; k < lanes; ++k) ++met[static_cast<size_t>(i + k)];
    });
    CHECK(met == std::vector<int>(static_cast<size_t>(n), 1));
  }
}

TEST_CASE("sum_vectors visits every element once") {
  for (const int64_t n : {0, 1, 15, 16, 63, 64, 65, 100, 128 + 16 + 3}) {
    std::vector<float> ones(static_cast<size_t>(n), 1.0f);
    const float total = sum_vectors(
        n, [&](int64_t i, auto lanes, Floats& part) { part = part + load(ones.data() + i, lanes); });
    CHECK(total == static_cast<float>(n));
  }
}

TEST_CASE("a non-temporal store reads back the same at any address") {
  alignas(64) float floats[3 * kWidth];
  alignas(64) bf16 halves[3 * kWidth];
  for (int offset = 0; offset <= kWidth; ++offset) {
    store_past_caches(floats + offset, splat(1.5f + static_cast<float>(offset)));
    store_past_caches(halves + offset, splat(2.5f + static_cast<float>(offset)));
    store_fence();
    CHECK(sum(load(floats + offset)) == 16 * (1.5f + static_cast<float>(offset)));
    CHECK(sum(load(halves + offset)) == 16 * (2.5f + static_cast<float>(offset)));
  }
}

TEST_CASE("simd sums and maxima include every lane") {
  for (int lane = 0; lane < kWidth; ++lane) {
    Floats v = splat(-1.0f);
    v[lane] = 64.0f;
    CHECK(sum(v) == 49.0f);
    CHECK(max(v) == 64.0f);
  }
}
