#include "kernels/lion.h"

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

constexpr int64_t kCount = 6;
constexpr float kLr = 0.125f;  // exact

}  // namespace

TEST_CASE("lion matches the third step of a formula in PyTorch") {
  for (const Case& c : bench::golden_cases("lion")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("lion_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("lion moves an element by the learning rate, against the sign of its average") {
  float p[kCount] = {1, 1, 1, 1, 1, 1};
  float m[kCount] = {0, 0, 0, 1, 1, -0.0f};
  float g[kCount] = {0, 1e-30f, -7, -8, -10, -0.0f};  // averages with m: 0.9 - 0.8 and 0.9 - 1
  float one = 1;
  StreamSet streams(Device::cpu());
  lion(streams.add("compute"), {.shard = {.p = tensor_of(p, {kCount}),
                                          .copy = {},
                                          .g = tensor_of(g, {kCount}),
                                          .state = {tensor_of(m, {kCount})},
                                          .decay_end = 0},
                                .grad_scale = tensor_of(&one, {1}),
                                .skip = {},
                                .lr = kLr,
                                .beta1 = 0.9,
                                .beta2 = 0.99,
                                .step = 1});
  CHECK(p[0] == 1);  // sign(0) = 0
  CHECK(p[1] == 1 - kLr);
  CHECK(p[2] == 1 + kLr);
  CHECK(p[3] == 1 - kLr);
  CHECK(p[4] == 1 + kLr);
  CHECK(p[5] == 1);
  CHECK(m[0] == 0);
  CHECK(m[2] == doctest::Approx(-0.07).epsilon(1e-6));
  CHECK(m[3] == doctest::Approx(0.99 - 0.08).epsilon(1e-6));
}
