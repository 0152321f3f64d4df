#include "kernels/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr RandomStream kRandom(3, "model.layers.0.self_attn.q_proj.weight");

template <class T>
std::vector<T> values(Init init, int64_t first, int64_t count) {
  std::vector<T> y(static_cast<size_t>(count));
  StreamSet streams(Device::cpu());
  init_param(streams.add("compute"),
             {.y = tensor_of(y.data(), {count}), .init = init, .random = kRandom, .first = first});
  return y;
}

}  // namespace

TEST_CASE("every shard is initialized with the values of the full parameter") {
  constexpr int64_t kCount = 40000;
  for (const Init init : {Init::constant(0.5f), Init::normal(0.02f), Init::uniform(0.1f)}) {
    const std::vector<float> whole = values<float>(init, 0, kCount);
    for (const int ranks : {2, 3, 7}) {
      const int64_t shard = (kCount + ranks - 1) / ranks;
      std::vector<float> joined;
      for (int64_t begin = 0; begin < kCount; begin += shard) {
        const std::vector<float> part = values<float>(init, begin, std::min(shard, kCount - begin));
        joined.insert(joined.end(), part.begin(), part.end());
      }
      CHECK(joined == whole);
    }
  }
}

TEST_CASE("16-bit parameters are initialized with rounded f32 values") {
  const std::vector<float> exact = values<float>(Init::normal(0.02f), 5, 300);
  const std::vector<bf16> rounded = values<bf16>(Init::normal(0.02f), 5, 300);
  const std::vector<f16> half = values<f16>(Init::normal(0.02f), 5, 300);
  for (size_t i = 0; i < exact.size(); ++i) {
    REQUIRE(rounded[i].bits == bf16(exact[i]).bits);
    REQUIRE(half[i].bits == f16(exact[i]).bits);
  }
}

TEST_CASE("normal initial values have the given mean and standard deviation") {
  constexpr int64_t kCount = 1 << 18;  // the bounds below are five standard errors
  struct Claim {
    Init init;
    double deviation, kurtosis;
  };
  for (const Claim& claim :
       {Claim{Init::normal(0.02f), 0.02, 3.0}, Claim{Init::uniform(0.1f), 0.1 / std::sqrt(3.0), 1.8}}) {
    double sum = 0, squares = 0;
    for (const float v : values<float>(claim.init, 0, kCount)) {
      sum += static_cast<double>(v);
      squares += static_cast<double>(v) * static_cast<double>(v);
    }
    CHECK(std::abs(sum / kCount) < 5 * claim.deviation / std::sqrt(kCount));
    const double variance = claim.deviation * claim.deviation;
    CHECK(std::abs(squares / kCount - variance) < 5 * variance * std::sqrt((claim.kurtosis - 1) / kCount));
  }
}

TEST_CASE("uniform initial values stay within the bound") {
  const std::vector<float> y = values<float>(Init::uniform(0.25f), 0, 100000);
  CHECK(*std::min_element(y.begin(), y.end()) >= -0.25f);
  CHECK(*std::max_element(y.begin(), y.end()) < 0.25f);
}

TEST_CASE("init_param reports an argument out of bounds") {
  CHECK(test::error_of([] { values<float>(Init::normal(NAN), 0, 1); }) ==
        "init_param: init.value is nan, must be finite");
  CHECK(test::error_of([] { values<float>(Init::normal(1), -2, 1); }) ==
        "init_param: first is -2, must not be negative");
  CHECK(test::error_of([] { values<int32_t>(Init::normal(1), 0, 1); }) ==
        "init_param: y is i32, must be f32, bf16 or f16");
}
