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
  std::vector<bf16> copy = std::vector<bf16>(kCount, bf16(0.0f));
  float grad_scale = 1.0f;
  int32_t skip = 0;

  Run() {
    for (int i = 0; i < kCount; ++i) p[i] = static_cast<float>((i * 37 + 11) % 101 - 50) / 64.0f;
  }

  void fill_gradient(int t) {
    for (int i = 0; i < kCount; ++i) g[i] = static_cast<float>((i * 53 + 7 * t) % 127 - 63) / 1024.0f;
  }

  // The arguments for the shard [begin, end).
  AdamW args(int64_t step, int64_t begin = 0, int64_t end = kCount) {
    const Shape shape{end - begin};
    return {.p = tensor_of(p.data() + begin, shape),
            .m = tensor_of(m.data() + begin, shape),
            .v = tensor_of(v.data() + begin, shape),
            .copy = tensor_of(copy.data() + begin, shape),
            .g = tensor_of(g.data() + begin, shape),
            .grad_scale = tensor_of(&grad_scale, {1}),
            .skip = tensor_of(&skip, {1}),
            .lr = 1e-3,
            .weight_decay = 0.01,
            .decay_end = end - begin,
            .step = step};
  }

  void step(int t) {
    fill_gradient(t);
    StreamGroup streams(Device::cpu());
    adamw(streams.add("compute"), args(t));
  }
};

std::string error_with(void (*change)(AdamW&)) {
  Run run;
  StreamGroup streams(Device::cpu());
  AdamW a = run.args(1);
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
    int32_t nonfinite, groups[2];
    const int64_t chunks = 1;
    StreamGroup streams(Device::cpu());
    Stream& stream = streams.add("compute");
    sum_squares(stream, {.partials = tensor_of(&partial, {1}), .x = tensor_of(run.g.data(), {kCount})});
    sum_partials(stream, {.groups = tensor_of(groups, {1, 2}),
                          .partials = tensor_of(&partial, {1, 1}),
                          .units = {&chunks, 1}});
    clip_coefficient(stream, {.norm = tensor_of(&norm, {1}),
                              .coefficient = tensor_of(&clip, {1}),
                              .nonfinite = tensor_of(&nonfinite, {1}),
                              .groups = tensor_of(groups, {1, 2}),
                              .max_norm = 0.3f});
    CHECK(near(norm, expected.norm, kF32));
    CHECK(near(clip, expected.clip, kF32));
  }
}

TEST_CASE("adamw on shards gives the bits of adamw on the whole range") {
  Run whole, cut;
  whole.step(1);
  cut.fill_gradient(1);
  StreamGroup streams(Device::cpu());
  Stream& stream = streams.add("compute");
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 171}, {171, 342}, {342, 512}})
    adamw(stream, cut.args(1, begin, end));
  CHECK(cut.p == whole.p);
  CHECK(cut.m == whole.m);
  CHECK(cut.v == whole.v);
}

TEST_CASE("adamw decays the elements before decay_end and no others") {
  Run decayed, plain, mixed;
  StreamGroup streams(Device::cpu());
  Stream& stream = streams.add("compute");
  for (Run* run : {&decayed, &plain, &mixed}) run->fill_gradient(1);
  AdamW none = plain.args(1), some = mixed.args(1);
  none.weight_decay = 0;
  some.decay_end = 45;
  adamw(stream, decayed.args(1));
  adamw(stream, none);
  adamw(stream, some);
  CHECK(decayed.p[44] != plain.p[44]);
  CHECK(decayed.p[45] != plain.p[45]);
  for (size_t i = 0; i < kCount; ++i) REQUIRE(mixed.p[i] == (i < 45 ? decayed.p[i] : plain.p[i]));
}

TEST_CASE("adamw rounds the updated weights into the copy") {
  Run run;
  run.step(1);
  for (size_t i = 0; i < kCount; ++i) REQUIRE(run.copy[i].bits == bf16(run.p[i]).bits);
}

TEST_CASE("adamw changes nothing when the skip flag is set, whatever the gradients") {
  Run run;
  run.step(1);
  const Run before = run;
  run.skip = 1;
  run.grad_scale = NAN;
  run.step(2);
  CHECK(run.p == before.p);
  CHECK(run.m == before.m);
  CHECK(run.v == before.v);
  CHECK(run.copy[5].bits == before.copy[5].bits);
}

TEST_CASE("adamw reads the clip coefficient when it runs, not when it is enqueued") {
  Run late, direct;
  direct.grad_scale = 0.25f;
  direct.step(1);
  late.fill_gradient(1);
  StreamGroup streams(Device::cpu(), {.order = StreamOrder::comm_late});
  Stream& stream = streams.add("compute");
  adamw(stream, late.args(1));
  late.grad_scale = 0.25f;
  stream.sync();
  CHECK(late.p == direct.p);
}

TEST_CASE("adamw names the value that is out of bounds") {
  CHECK(error_with([](AdamW& a) { a.step = 0; }) == "adamw: step is 0, must be at least 1");
  CHECK(error_with([](AdamW& a) { a.beta2 = 1; }) == "adamw: beta2 is 1, must be in [0, 1)");
  CHECK(error_with([](AdamW& a) { a.decay_end = 513; }) == "adamw: decay_end is 513, must be in [0, 512]");
  CHECK(error_with([](AdamW& a) { a.lr = NAN; }) == "adamw: lr is nan, must be finite and not negative");
  CHECK(error_with([](AdamW& a) { a.m = a.m.slice(0, 7); }) ==
        "adamw: m is f32 (7), must be f32 with 512 elements");
  CHECK(error_with([](AdamW& a) { a.skip = a.grad_scale; }) ==
        "adamw: skip is f32 (1), must be empty or one i32");
}
