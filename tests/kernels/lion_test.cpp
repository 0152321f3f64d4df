#include "kernels/lion.h"

#include <cmath>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

constexpr int64_t kCount = 500;
constexpr float kLr = 0.125f;  // exact in every dtype

struct Run {
  std::vector<float> p = std::vector<float>(kCount), m = p, g = p;
  std::vector<bf16> copy = std::vector<bf16>(kCount, bf16(0.0f));
  float grad_scale = 1.0f;
  int32_t skip = 0;

  Run() {
    for (int i = 0; i < kCount; ++i) {
      p[i] = static_cast<float>((i * 37 + 11) % 101 - 50) / 64.0f;
      m[i] = static_cast<float>((i * 29 + 3) % 89 - 44) / 512.0f;
      g[i] = static_cast<float>((i * 53 + 7) % 127 - 63) / 1024.0f;
    }
  }

  // The arguments for the shard [begin, end).
  Lion args(int64_t begin = 0, int64_t end = kCount) {
    const Shape shape{end - begin};
    return {.p = tensor_of(p.data() + begin, shape),
            .m = tensor_of(m.data() + begin, shape),
            .copy = tensor_of(copy.data() + begin, shape),
            .g = tensor_of(g.data() + begin, shape),
            .grad_scale = tensor_of(&grad_scale, {1}),
            .skip = tensor_of(&skip, {1}),
            .lr = kLr,
            .weight_decay = 0.5,
            .decay_end = end - begin};
  }
};

void apply(const Lion& a) {
  StreamGroup streams(Device::cpu());
  lion(streams.add("compute"), a);
}

std::string error_with(void (*change)(Lion&)) {
  Run run;
  Lion a = run.args();
  change(a);
  return test::error_of([&] { apply(a); });
}

}  // namespace

TEST_CASE("lion matches the third step of a formula in PyTorch") {
  for (const Case& c : bench::golden_cases("lion")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("lion_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("lion moves an element by the learning rate, against the sign of its average") {
  Run run;
  run.m = std::vector<float>(kCount, 0.0f);
  run.g = run.m;
  run.p = std::vector<float>(kCount, 1.0f);
  run.g[1] = 1e-30f;
  run.g[2] = -7.0f;
  run.m[3] = 1.0f, run.g[3] = -8.0f;   // 0.9 - 0.8
  run.m[4] = 1.0f, run.g[4] = -10.0f;  // 0.9 - 1
  run.m[5] = -0.0f, run.g[5] = -0.0f;
  Lion a = run.args();
  a.weight_decay = 0;
  apply(a);
  CHECK(run.p[0] == 1.0f);  // sign(0) = 0
  CHECK(run.p[1] == 1.0f - kLr);
  CHECK(run.p[2] == 1.0f + kLr);
  CHECK(run.p[3] == 1.0f - kLr);
  CHECK(run.p[4] == 1.0f + kLr);
  CHECK(run.p[5] == 1.0f);
  CHECK(run.m[0] == 0.0f);
  CHECK(run.m[2] == doctest::Approx(-0.07).epsilon(1e-6));
  CHECK(run.m[3] == doctest::Approx(0.99 - 0.08).epsilon(1e-6));
}

TEST_CASE("lion on shards gives the bits of lion on the whole range") {
  Run whole, cut;
  apply(whole.args());
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 171}, {171, 342}, {342, kCount}})
    apply(cut.args(begin, end));
  CHECK(cut.p == whole.p);
  CHECK(cut.m == whole.m);
}

TEST_CASE("lion decays the elements before decay_end and no others") {
  Run decayed, plain, mixed;
  Lion none = plain.args(), some = mixed.args();
  none.weight_decay = 0;
  some.decay_end = 45;
  apply(decayed.args());
  apply(none);
  apply(some);
  CHECK(decayed.p[44] != plain.p[44]);
  CHECK(decayed.p[45] != plain.p[45]);
  for (size_t i = 0; i < kCount; ++i) REQUIRE(mixed.p[i] == (i < 45 ? decayed.p[i] : plain.p[i]));
}

TEST_CASE("lion rounds the updated weights into the copy") {
  Run run;
  apply(run.args());
  for (size_t i = 0; i < kCount; ++i) REQUIRE(run.copy[i].bits == bf16(run.p[i]).bits);
}

TEST_CASE("lion changes nothing when the skip flag is set, whatever the gradients") {
  Run run;
  const Run before = run;
  run.skip = 1;
  run.grad_scale = NAN;
  apply(run.args());
  CHECK(run.p == before.p);
  CHECK(run.m == before.m);
  CHECK(run.copy[5].bits == before.copy[5].bits);
}

TEST_CASE("lion reads the clip coefficient when it runs, not when it is enqueued") {
  Run late, direct;
  direct.grad_scale = 0.25f;
  apply(direct.args());
  StreamGroup streams(Device::cpu(), {.order = StreamOrder::comm_late});
  Stream& stream = streams.add("compute");
  lion(stream, late.args());
  late.grad_scale = 0.25f;
  stream.sync();
  CHECK(late.p == direct.p);
  CHECK(late.m == direct.m);
}

TEST_CASE("lion names the value that is out of bounds") {
  CHECK(error_with([](Lion& a) { a.beta2 = 1; }) == "lion: beta2 is 1, must be in [0, 1)");
  CHECK(error_with([](Lion& a) { a.decay_end = 501; }) == "lion: decay_end is 501, must be in [0, 500]");
  CHECK(error_with([](Lion& a) { a.lr = NAN; }) == "lion: lr is nan, must be finite and not negative");
  CHECK(error_with([](Lion& a) { a.m = a.m.slice(0, 7); }) ==
        "lion: m is f32 (7), must be f32 with 500 elements");
  CHECK(error_with([](Lion& a) { a.skip = a.grad_scale; }) ==
        "lion: skip is f32 (1), must be empty or one i32");
}
