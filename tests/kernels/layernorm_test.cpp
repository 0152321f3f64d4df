#include "kernels/layernorm.h"

#include <array>
#include <cmath>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

// One row through layernorm_forward with w = 1 and b = 0.
template <size_t N>
std::array<float, N> normalised(std::array<float, N> x) {
  StreamSet streams(Device::cpu());
  const int64_t C = N;
  std::array<float, N> y{}, w{}, b{};
  w.fill(1.0f);
  float mean[1], rstd[1];
  layernorm_forward(streams.add("compute"), {.y = tensor_of(y.data(), {1, C}),
                                             .mean = tensor_of(mean, {1}),
                                             .rstd = tensor_of(rstd, {1}),
                                             .x = tensor_of(x.data(), {1, C}),
                                             .w = tensor_of(w.data(), {C}),
                                             .b = tensor_of(b.data(), {C}),
                                             .eps = 1e-5f});
  return y;
}

}  // namespace

TEST_CASE("layernorm matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("layernorm")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("layernorm_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("layernorm divides by the biased standard deviation") {
  const auto y = normalised<4>({1, 2, 3, 4});
  const float expected[] = {-1.34163542f, -0.447211807f, 0.447211807f, 1.34163542f};
  for (size_t i = 0; i < 4; ++i) CHECK(std::abs(y[i] - expected[i]) < 2e-7f);
}

TEST_CASE("layernorm is accurate for a small deviation around a large mean") {
  const auto y = normalised<4>({4096.0f, 4097.0f, 4098.0f, 4099.0f});
  CHECK(std::abs(y[0] + 1.34163542f) < 1e-6f);
  CHECK(std::abs(y[3] - 1.34163542f) < 1e-6f);
}

TEST_CASE("layernorm of a row of equal values is its bias") {
  for (const float y : normalised<3>({2.5f, 2.5f, 2.5f})) CHECK(y == 0.0f);
}

TEST_CASE("layernorm reports a bias that does not fit x") {
  StreamSet streams(Device::cpu());
  float x[6] = {}, w[3] = {}, b[2] = {}, mean[2], rstd[2];
  const std::string error = test::error_of([&] {
    layernorm_forward(streams.add("compute"), {.y = tensor_of(x, {2, 3}),
                                               .mean = tensor_of(mean, {2}),
                                               .rstd = tensor_of(rstd, {2}),
                                               .x = tensor_of(x, {2, 3}),
                                               .w = tensor_of(w, {3}),
                                               .b = tensor_of(b, {2}),
                                               .eps = 1e-5f});
  });
  CHECK(error ==
        "layernorm_forward: b is f32 (2), x is f32 (2, 3); b must have the last dimension of x, and its "
        "dtype or f32");
}

TEST_CASE("layernorm_backward reports a gradient that does not fit") {
  StreamSet streams(Device::cpu());
  Arena scratch("scratch", Device::cpu());
  float x[6] = {}, w[3] = {}, dw[3] = {}, db[2] = {}, mean[2], rstd[2];
  const std::string error = test::error_of([&] {
    layernorm_backward(streams.add("compute"), scratch,
                       {.dx = tensor_of(x, {2, 3}),
                        .dw = tensor_of(dw, {3}),
                        .db = tensor_of(db, {2}),
                        .dy = tensor_of(x, {2, 3}),
                        .x = tensor_of(x, {2, 3}),
                        .w = tensor_of(w, {3}),
                        .mean = tensor_of(mean, {2}),
                        .rstd = tensor_of(rstd, {2})});
  });
  CHECK(error == "layernorm_backward: db is f32 (2), must be f32 with one element for each of 3 columns");
}

TEST_CASE("layernorm_backward of frozen parameters needs no scratch and gives the same dx") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  const auto dx_of = [&](bool frozen) {
    float x[10], dy[10], w[5] = {1, 2, 3, 4, 5}, dw[5] = {}, db[5] = {};
    float mean[2] = {0.5f, -1}, rstd[2] = {2, 0.75f};
    for (int i = 0; i < 10; ++i) x[i] = static_cast<float>(i % 4) - 1.3f, dy[i] = static_cast<float>(i % 3);
    std::array<float, 10> dx{};
    LayerNormBackward a{.dx = tensor_of(dx.data(), {2, 5}),
                        .dw = tensor_of(dw, {5}),
                        .db = tensor_of(db, {5}),
                        .dy = tensor_of(dy, {2, 5}),
                        .x = tensor_of(x, {2, 5}),
                        .w = tensor_of(w, {5}),
                        .mean = tensor_of(mean, {2}),
                        .rstd = tensor_of(rstd, {2})};
    if (frozen) a.dw = a.db = {};
    Arena scratch("scratch", Device::cpu());
    StreamSet planning(Device::cpu(), {.planning = true});
    layernorm_backward(planning.add("plan"), scratch, a);
    CHECK((scratch.peak() == 0) == frozen);
    scratch.commit();
    layernorm_backward(stream, scratch, a);
    return dx;
  };
  CHECK(dx_of(true) == dx_of(false));
}
