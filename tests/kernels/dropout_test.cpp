#include "kernels/dropout.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/test.h"

using namespace flatshard;

namespace {

std::vector<float> dropped(const std::vector<float>& x, float p, int64_t first = 0, uint64_t step = 0) {
  std::vector<float> y = x;  // in place
  const Shape shape{static_cast<int64_t>(y.size())};
  StreamSet streams(Device::cpu());
  dropout_forward(streams.add("compute"), {.out = tensor_of(y.data(), shape),
                                           .in = tensor_of(y.data(), shape),
                                           .p = p,
                                           .random = RandomStream(4, "mlp", step),
                                           .first = first});
  return y;
}

std::vector<float> numbers(size_t n) {
  std::vector<float> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) + 1.0f;
  return x;
}

}  // namespace

TEST_CASE("dropout drops a fraction p and scales the rest to preserve the mean") {
  constexpr size_t kCount = 1 << 18;
  for (const float p : {0.1f, 0.5f, 0.9f}) {
    const std::vector<float> y = dropped(std::vector<float>(kCount, 1.0f), p);
    const auto kept = kCount - static_cast<size_t>(std::count(y.begin(), y.end(), 0.0f));
    const double q = 1.0 - static_cast<double>(p);
    CHECK(std::abs(static_cast<double>(kept) - q * kCount) < 5 * std::sqrt(q * (1 - q) * kCount));
    CHECK(*std::max_element(y.begin(), y.end()) == doctest::Approx(1 / q));
  }
}

TEST_CASE("dropout with p = 0 changes no bit") {
  std::vector<float> x = numbers(100);
  x[3] = -0.0f;
  const std::vector<float> y = dropped(x, 0.0f);
  CHECK(y == x);
  CHECK(std::signbit(y[3]));
}

TEST_CASE("the mask of a shard is a slice of the full mask") {
  const std::vector<float> x = numbers(3000), whole = dropped(x, 0.4f);
  for (const size_t cut : {1, 64, 1027, 2999}) {
    std::vector<float> joined = dropped({x.begin(), x.begin() + cut}, 0.4f);
    const std::vector<float> rest = dropped({x.begin() + cut, x.end()}, 0.4f, static_cast<int64_t>(cut));
    joined.insert(joined.end(), rest.begin(), rest.end());
    CHECK(joined == whole);
  }
}

TEST_CASE("dropout uses another mask in every step") {
  CHECK(dropped(numbers(100), 0.5f, 0, 1) != dropped(numbers(100), 0.5f));
}

TEST_CASE("the backward pass regenerates the mask of the forward pass") {
  std::vector<float> x = numbers(500), dx(500);
  const RandomStream random(4, "mlp");
  StreamSet streams(Device::cpu());
  dropout_backward(streams.add("compute"), {.out = tensor_of(dx.data(), {500}),
                                            .in = tensor_of(x.data(), {500}),
                                            .p = 0.3f,
                                            .random = random,
                                            .first = 77});
  CHECK(dx == dropped(x, 0.3f, 77));
}

TEST_CASE("dropout propagates a NaN even when it drops it") {
  std::vector<float> x(200, NAN);
  const std::vector<float> y = dropped(x, 0.5f);
  CHECK(std::all_of(y.begin(), y.end(), [](float v) { return std::isnan(v); }));
}

TEST_CASE("dropout refuses a probability outside [0, 1)") {
  CHECK(test::error_of([] { dropped({1.0f}, 1.0f); }) == "dropout_forward: p is 1, must be in [0, 1)");
  CHECK(test::error_of([] { dropped({1.0f}, NAN); }) == "dropout_forward: p is nan, must be in [0, 1)");
}
