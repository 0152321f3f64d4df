#include "runtime/rng.h"

#include <algorithm>
#include <numbers>
#include <vector>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kMany = 1 << 20;

bool operator==(const RandomWords& a, const RandomWords& b) { return std::equal(a.word, a.word + 4, b.word); }

std::vector<float> normals(const RandomStream& random, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  random.fill_normal(first, values);
  return values;
}

std::vector<float> uniforms(const RandomStream& random, int64_t first, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  random.fill_uniform(first, values);
  return values;
}

// The mean of f(x[i], x[i + lag]).
template <class F>
double mean(const std::vector<float>& x, size_t lag, F f) {
  double sum = 0;
  for (size_t i = 0; i + lag < x.size(); ++i)
    sum += f(static_cast<double>(x[i]), static_cast<double>(x[i + lag]));
  return sum / static_cast<double>(x.size() - lag);
}

// sqrt(-2 ln u) cos(2 pi v) or sin, in double, from the same words.
double exact_normal(const RandomStream& random, int64_t i) {
  const float radius = static_cast<float>(random.bits(i & ~int64_t{1}));
  const double u = std::fma(radius, 0x1p-32f, 0x1p-33f);  // its rounding is part of the definition
  const double v = random.bits(i | 1) * 0x1p-32;
  const double angle = 2 * std::numbers::pi * v;
  return std::sqrt(-2 * std::log(u)) * (i & 1 ? std::sin(angle) : std::cos(angle));
}

}  // namespace

TEST_CASE("Philox gives the published words") {
  constexpr uint32_t kOnes = 0xffffffffu;
  CHECK(philox({{0, 0, 0, 0}}, 0, 0) == RandomWords{{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  CHECK(philox({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes) ==
        RandomWords{{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  CHECK(philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0) ==
        RandomWords{{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
}

TEST_CASE("the words of a named stream never change") {
  // Computed from the definition in rng.h by an independent program.
  constexpr RandomStream kWeights(42, "model.embed_tokens.weight");
  CHECK(kWeights.words(0) == RandomWords{{0xcfc3a3b1, 0x179fe796, 0xeef93c7c, 0x0cc733c2}});
  constexpr RandomStream kDropout(42, "dropout", (uint64_t{5} << 32) + 3);
  CHECK(kDropout.words((int64_t{1} << 33) + 7) ==
        RandomWords{{0x51fb88da, 0xa3fb8543, 0x92774c20, 0xcd3f33f0}});
  CHECK(kDropout.bits((int64_t{1} << 35) + 30) == kDropout.words((int64_t{1} << 33) + 7).word[2]);
}

TEST_CASE("streams with different seeds, purposes or steps differ") {
  const RandomStream one(1, "a", 0);
  for (const RandomStream& other : {RandomStream(2, "a", 0), RandomStream(1, "b", 0), RandomStream(1, "a", 1),
                                    RandomStream(1, "a", uint64_t{1} << 32)}) {
    const std::vector<float> x = normals(one, 0, kMany / 8), y = normals(other, 0, kMany / 8);
    double product = 0;
    for (size_t i = 0; i < x.size(); ++i) product += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    CHECK(std::abs(product / static_cast<double>(x.size())) < 0.015);  // five standard deviations
  }
}

TEST_CASE("random numbers do not depend on how a range is split") {
  const RandomStream random(7, "cut", 2);
  for (const int64_t first : {int64_t{0}, int64_t{3}, int64_t{64}, int64_t{130}, (int64_t{1} << 34) - 5})
    for (const int64_t count : {1, 2, 61, 64, 200}) {
      const std::vector<float> normal = normals(random, first, count),
                               uniform = uniforms(random, first, count);
      for (int64_t i = 0; i < count; ++i) {
        REQUIRE(normal[static_cast<size_t>(i)] == random.normal(first + i));
        REQUIRE(uniform[static_cast<size_t>(i)] == random.uniform(first + i));
      }
    }
}

TEST_CASE("uniform numbers fill [0, 1) evenly") {
  const std::vector<float> x = uniforms(RandomStream(3, "uniform"), 0, kMany);
  CHECK(*std::min_element(x.begin(), x.end()) >= 0.0f);
  CHECK(*std::max_element(x.begin(), x.end()) < 1.0f);
  CHECK(RandomStream::to_uniform(0xffffffffu) == 1.0f - 0x1p-24f);
  // Bounds are five standard deviations of the estimate.
  CHECK(std::abs(mean(x, 0, [](double a, double) { return a; }) - 0.5) < 5 * 0.2887 / 1024);
  CHECK(std::abs(mean(x, 0, [](double a, double) { return a * a; }) - 1.0 / 3) < 5 * 0.2982 / 1024);
  std::vector<int> counts(256);
  for (const float v : x) ++counts[static_cast<size_t>(v * 256.0f)];
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - 4096.0) * (count - 4096.0) / 4096.0;
  CHECK(std::abs(chi_squared - 255) < 5 * std::sqrt(2 * 255.0));
}

TEST_CASE("normal numbers equal the formula in double") {
  const RandomStream random(11, "accuracy");
  const std::vector<float> x = normals(random, 0, kMany / 4);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = exact_normal(random, static_cast<int64_t>(i));
    worst = std::max(worst, std::abs(static_cast<double>(x[i]) - exact) / std::max(1.0, std::abs(exact)));
  }
  CHECK(worst < 4 * 0x1p-24);
}

TEST_CASE("normal numbers have the same bits on every processor") {
  uint64_t hash = 0;
  for (const float v : normals(RandomStream(5, "bits"), 0, 4096))
    hash = hash * 31 + std::bit_cast<uint32_t>(v);
  CHECK(hash == 2147635408716794295u);
}

TEST_CASE("normal numbers have the moments and tails of the normal distribution") {
  const std::vector<float> x = normals(RandomStream(9, "moments"), 0, kMany);
  // Bounds are five standard deviations of the estimate: sqrt(variance of the moment / 2^20).
  CHECK(std::abs(mean(x, 0, [](double a, double) { return a; })) < 5 * 1.0 / 1024);
  CHECK(std::abs(mean(x, 0, [](double a, double) { return a * a; }) - 1) < 5 * std::sqrt(2.0) / 1024);
  CHECK(std::abs(mean(x, 0, [](double a, double) { return a * a * a; })) < 5 * std::sqrt(15.0) / 1024);
  CHECK(std::abs(mean(x, 0, [](double a, double) { return a * a * a * a; }) - 3) <
        5 * std::sqrt(96.0) / 1024);
  for (const auto& [bound, probability] :
       {std::pair{1.0, 0.317311}, {2.0, 0.0455003}, {3.0, 0.0026998}, {4.0, 6.3342e-5}}) {
    const double limit = bound;
    CAPTURE(limit);
    const double beyond = mean(x, 0, [limit](double a, double) { return std::abs(a) > limit ? 1.0 : 0.0; });
    CHECK(std::abs(beyond - probability) < 5 * std::sqrt(probability) / 1024);
  }
}

TEST_CASE("neighbouring normal numbers are independent") {
  const std::vector<float> x = normals(RandomStream(13, "neighbours"), 0, kMany);
  for (const size_t lag : {1, 2, 3, 4, 8, 64}) {
    CAPTURE(lag);
    CHECK(std::abs(mean(x, lag, [](double a, double b) { return a * b; })) < 5.0 / 1024);
    CHECK(std::abs(mean(x, lag, [](double a, double b) { return (a * a - 1) * (b * b - 1); })) <
          5 * 2.0 / 1024);
  }
}

TEST_CASE("normal numbers are finite at the ends of the range") {
  for (const uint32_t angle : {0u, 0x1fffffffu, 0x20000000u, 0x40000000u, 0x80000000u, 0xffffffffu}) {
    const NormalPair rare = box_muller(0, angle), common = box_muller(0xffffffffu, angle);
    CHECK(std::hypot(rare.first, rare.second) == doctest::Approx(std::sqrt(66 * std::numbers::ln2)));
    CHECK(std::hypot(common.first, common.second) == 0.0f);
  }
}
