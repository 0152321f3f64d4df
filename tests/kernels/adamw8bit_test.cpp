#include "kernels/adamw8bit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/dynamic_table.h"
#include "runtime/sha256.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// The reference vector of the specification: n = 512, lr 1e-3, betas 0.9 and 0.999, eps 1e-8, weight decay
// 0.01.
constexpr size_t kCount = 512, kBlock = static_cast<size_t>(kMomentBlock);
// For values of order one in fp32, and their sum over 512 elements in double.
constexpr double kF32 = 1e-6, kSum = 1e-5;

struct Run {
  explicit Run(size_t n = kCount)
      : p(n), g(n), m(n, kSignedZero), v(n, 0), m_absmax((n + kBlock - 1) / kBlock), v_absmax(m_absmax) {
    for (int i = 0; i < static_cast<int>(n); ++i) p[i] = static_cast<float>((i * 37 + 11) % 101 - 50) / 64.0f;
  }
  std::vector<float> p, g;
  std::vector<uint8_t> m, v;
  std::vector<float> m_absmax, v_absmax;
  float grad_scale = 1.0f;

  void fill_gradient(int t) {
    for (int i = 0; i < static_cast<int>(g.size()); ++i)
      g[i] = static_cast<float>((i * 53 + 7 * t) % 127 - 63) / 1024.0f;
  }

  OptimizerUpdate args(int64_t step) {
    const auto all = [](auto& values) {
      return tensor_of(values.data(), {static_cast<int64_t>(values.size())});
    };
    return {.shard = {.p = all(p),
                      .copy = {},
                      .g = all(g),
                      .state = {all(m), all(v), all(m_absmax), all(v_absmax)},
                      .decay_end = static_cast<int64_t>(p.size())},
            .grad_scale = tensor_of(&grad_scale, {1}),
            .skip = {},
            .lr = 1e-3,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .weight_decay = 0.01,
            .step = step};
  }

  void step(int t) { apply(args(t)); }

  static void apply(const OptimizerUpdate& a) {
    StreamSet streams(Device::cpu());
    adamw8bit(streams.add("compute"), a);
  }

  // A step whose new m is g and whose new v is g^2.
  void store_gradient() {
    OptimizerUpdate a = args(1);
    a.beta1 = a.beta2 = 0;
    apply(a);
  }
};

std::string start_of_sum(const std::vector<uint8_t>& codes) {
  Sha256 sha;
  sha.add(codes.data(), codes.size());
  return sha.hex().substr(0, 16);
}

// The number of midpoints strictly below y, which is not negative.
int code_by_search(bool is_signed, float y) {
  const DynamicMidpoints middle = midpoints(dynamic_table(is_signed));
  return static_cast<int>(std::lower_bound(middle.begin(), middle.end(), y) - middle.begin());
}
int signed_code_by_search(float y) {
  const int magnitude = code_by_search(true, std::abs(y)) - kSignedZero;
  return kSignedZero + (y < 0 ? -std::clamp(magnitude, 1, 127) : magnitude);
}

bool near(double value, double expected, double tolerance) { return std::abs(value - expected) <= tolerance; }

}  // namespace

TEST_CASE("adamw8bit reproduces the reference vector of the specification for three steps") {
  struct Expected {
    std::vector<uint8_t> m, v;
    const char *m_sum, *v_sum;
    double m_absmax, v_absmax, p[3], sum;
  };
  const Expected expected[] = {{{7, 82, 240, 44, 216, 20},
                                {225, 35, 202, 133, 142, 185},
                                "73c62e3226a21075",
                                "2fecb41d3487deda",
                                0.006152344,
                                3.7851335e-6,
                                {-0.60836893, -0.03024969, 0.54586953},
                                -0.01362486},
                               {{8, 159, 247, 47, 222, 22},
                                {221, 39, 226, 129, 154, 181},
                                "c0942eb64b6c1547",
                                "c0ddb1edfd408ab1",
                                0.0111054610,
                                6.8884983e-6,
                                {-0.60736620, -0.03043997, 0.54486173},
                                -0.01657422},
                               {{9, 183, 197, 50, 229, 24},
                                {212, 65, 246, 121, 167, 173},
                                "68d3780a31916020",
                                "d66881d6d74f82dc",
                                0.0149525544,
                                9.8723322e-6,
                                {-0.60637099, -0.03108412, 0.54467142},
                                -0.02347390}};
  Run run;
  for (int t = 1; t <= 3; ++t) {
    CAPTURE(t);
    const Expected& e = expected[t - 1];
    run.fill_gradient(t);
    run.step(t);
    CHECK(std::equal(e.m.begin(), e.m.end(), run.m.begin()));
    CHECK(std::equal(e.v.begin(), e.v.end(), run.v.begin()));
    CHECK(start_of_sum(run.m) == e.m_sum);
    CHECK(start_of_sum(run.v) == e.v_sum);
    for (const size_t block : {0, 1}) {
      CHECK(near(run.m_absmax[block], e.m_absmax, 1e-9));
      CHECK(near(run.v_absmax[block], e.v_absmax, 1e-12));
    }
    for (size_t i = 0; i < 3; ++i) CHECK(near(run.p[i], e.p[i], kF32));
    CHECK(near(std::accumulate(run.p.begin(), run.p.end(), 0.0), e.sum, kSum));
  }
}

TEST_CASE("adamw8bit matches a step of bitsandbytes") {
  for (const bench::Case& c : bench::golden_cases("adamw8bit")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("adamw8bit_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("the code of a moment is that of a search, next to every midpoint of the tables") {
  std::vector<float> of_m, of_v;  // magnitudes of m; square roots of v
  const auto add_neighbours = [](std::vector<float>& values, float x) {
    for (int below = 0; below < 3; ++below) x = std::nextafter(x, -2.0f);
    for (int i = 0; i < 7; ++i, x = std::nextafter(x, 2.0f)) values.push_back(x);
  };
  for (const float middle : midpoints(kSignedDynamicTable)) add_neighbours(of_m, middle);
  for (const float middle : midpoints(kUnsignedDynamicTable)) add_neighbours(of_v, std::sqrt(middle));
  for (const auto& values : {of_m, of_v}) {
    const size_t per_block = kBlock - 1;  // after a 1, so that absmax is 1
    Run run((values.size() + per_block - 1) / per_block * kBlock);
    for (size_t i = 0, at = 0; i < run.g.size(); ++i)
      run.g[i] = i % kBlock == 0 ? 1.0f : at < values.size() ? values[at++] : 0.0f;
    run.store_gradient();
    for (size_t i = 0; i < run.g.size(); ++i) {
      const float m = run.g[i], v = m * m;
      REQUIRE(run.m[i] == signed_code_by_search(m));
      REQUIRE(run.v[i] == code_by_search(false, v));
    }
  }
}

TEST_CASE("a first moment keeps its sign, however small, and both zeros have the code of zero") {
  Run run(kBlock);
  run.g[0] = 1.0f;
  run.g[1] = -1e-30f;
  run.g[2] = 1e-30f;
  run.g[3] = -0.0f;
  run.g[4] = -1.0f;  // the table has no -1
  run.store_gradient();
  CHECK(run.m[0] == 255);
  CHECK(run.m[1] == kSignedZero - 1);
  CHECK(run.m[2] == kSignedZero);
  CHECK(run.m[3] == kSignedZero);
  CHECK(run.m[4] == 0);
}

TEST_CASE("a block whose moments are zero or subnormal is stored as zeros") {
  for (const float value : {0.0f, 1e-40f, -1e-40f}) {
    CAPTURE(value);
    Run run(kBlock + 7);
    std::fill(run.m.begin(), run.m.end(), uint8_t{3});
    std::fill(run.v.begin(), run.v.end(), uint8_t{3});
    std::fill(run.g.begin(), run.g.end(), value);
    run.store_gradient();
    CHECK(run.m_absmax == std::vector<float>{0.0f, 0.0f});
    CHECK(run.v_absmax == std::vector<float>{0.0f, 0.0f});
    CHECK(run.m == std::vector<uint8_t>(kBlock + 7, kSignedZero));
    CHECK(run.v == std::vector<uint8_t>(kBlock + 7, 0));
    CHECK(std::none_of(run.p.begin(), run.p.end(), [](float p) { return std::isnan(p); }));
  }
}

TEST_CASE("a gradient that is not finite clears the moments of its element and nothing else") {
  Run clean, run;
  clean.fill_gradient(1);
  clean.g[5] = clean.g[300] = clean.g[301] = 0.0f;
  run.g = clean.g;
  const float before[] = {run.p[5], run.p[300], run.p[301]};
  run.g[5] = NAN;
  run.g[300] = -INFINITY;
  run.g[301] = 1e30f;  // its square overflows
  clean.step(1);
  run.step(1);
  CHECK(run.p[5] == before[0]);
  CHECK(run.p[300] == before[1]);
  CHECK(run.p[301] == before[2]);
  CHECK(run.m == clean.m);
  CHECK(run.v == clean.v);
  CHECK(run.m_absmax == clean.m_absmax);
  CHECK(run.v_absmax == clean.v_absmax);
}

TEST_CASE("adamw8bit names the tensor that is wrong") {
  Run run;
  OptimizerUpdate a = run.args(1);
  a.shard.state[0] = a.shard.p;
  CHECK(test::error_of([&] { Run::apply(a); }) == "adamw8bit: m is f32 (512), must be u8 with 512 elements");
  a = run.args(1);
  a.shard.state[3] = a.shard.state[3].slice(0, 1);
  CHECK(test::error_of([&] { Run::apply(a); }) ==
        "adamw8bit: v_absmax is f32 (1), must be f32 with 2 elements");
}
