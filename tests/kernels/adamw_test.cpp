#include "kernels/adamw.h"

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/sum_squares.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

// The reference vector of the specification: n = 512, lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay
// 0.01.
constexpr int64_t kCount = 512;
// For values of order one in fp32, and their sum over 512 elements in double.
constexpr double kF32 = 1e-7, kSum = 1e-5;

struct Run {
  std::vector<float> p = std::vector<float>(kCount), m = p, v = p, g = p;
  float grad_scale = 1.0f;

  Run() {
    for (int i = 0; i < kCount; ++i) p[i] = static_cast<float>((i * 37 + 11) % 101 - 50) / 64.0f;
  }

  void fill_gradient(int t) {
    for (int i = 0; i < kCount; ++i) g[i] = static_cast<float>((i * 53 + 7 * t) % 127 - 63) / 1024.0f;
  }

  OptimizerUpdate args(int64_t step) {
    const Shape shape{kCount};
    return {.shard = {.p = tensor_of(p.data(), shape),
                      .copy = {},
                      .g = tensor_of(g.data(), shape),
                      .state = {tensor_of(m.data(), shape), tensor_of(v.data(), shape)},
                      .decay_end = kCount},
            .grad_scale = tensor_of(&grad_scale, {1}),
            .skip = {},
            .lr = 1e-3,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .weight_decay = 0.01,
            .step = step};
  }

  void step(int t) {
    fill_gradient(t);
    StreamSet streams(Device::cpu());
    adamw(streams.add("compute"), args(t));
  }
};

std::string error_with(void (*change)(OptimizerUpdate&)) {
  Run run;
  StreamSet streams(Device::cpu());
  OptimizerUpdate a = run.args(1);
  change(a);
  return test::error_of([&] { adamw(streams.add("compute"), a); });
}

bool near(double value, double expected, double tolerance) { return std::abs(value - expected) <= tolerance; }

}  // namespace

TEST_CASE("adamw matches the third step of PyTorch") {
  for (const Case& c : bench::golden_cases("adamw")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("adamw_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("adamw reproduces the reference vector of the specification for three steps") {
  struct Expected {
    double norm, clip, p[4], sum;
  };
  constexpr Expected kSteps[] = {{0.810589819081,
                                  0.370100416805,
                                  {-0.608368906433, -0.0302496909133, 0.545869531455, -0.452120469177},
                                  -0.013624847568},
                                 {0.810433326949,
                                  0.370171881946,
                                  {-0.607368505766, -0.0304428982651, 0.544862802816, -0.451138988655},
                                  -0.0165501608411},
                                 {0.810432738575,
                                  0.37017215069,
                                  {-0.606379022285, -0.031086078539, 0.544670646389, -0.450213750859},
                                  -0.0232888348847}};
  Run run;
  for (int t = 1; t <= 3; ++t) {
    CAPTURE(t);
    const Expected& expected = kSteps[t - 1];
    run.step(t);
    for (int i = 0; i < 4; ++i) CHECK(near(run.p[i], expected.p[i], kF32));
    CHECK(near(std::accumulate(run.p.begin(), run.p.end(), 0.0), expected.sum, kSum));
    if (t == 1) {
      CHECK(near(run.m[0], -0.00546875, kF32));
      CHECK(near(run.v[0], 2.99072265625e-06, 1e-12));
    }
    float partial, norm, clip;
    int32_t nonfinite, sums[2];
    const int64_t intervals = 1;
    StreamSet streams(Device::cpu());
    Stream& stream = streams.add("compute");
    sum_squares(stream, {.partials = tensor_of(&partial, {1}), .x = tensor_of(run.g.data(), {kCount})});
    sum_partials(
        stream,
        {.sums = tensor_of(sums, {1, 2}), .partials = tensor_of(&partial, {1, 1}), .units = {&intervals, 1}});
    clip_coefficient(stream, {.norm = tensor_of(&norm, {1}),
                              .coefficient = tensor_of(&clip, {1}),
                              .nonfinite = tensor_of(&nonfinite, {1}),
                              .sums = tensor_of(sums, {1, 2}),
                              .max_norm = 0.3f});
    CHECK(near(norm, expected.norm, kF32));
    CHECK(near(clip, expected.clip, kF32));
  }
}

TEST_CASE("adamw names the value that is out of bounds") {
  CHECK(error_with([](OptimizerUpdate& a) { a.step = 0; }) == "adamw: step is 0, must be at least 1");
  CHECK(error_with([](OptimizerUpdate& a) { a.eps = 0; }) == "adamw: eps is 0, must be finite and above 0");
}
