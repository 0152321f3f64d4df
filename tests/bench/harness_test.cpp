// How the benchmark selects, checks and times cases. No test depends on actual times.

#include "bench/harness.h"

#include <cmath>
#include <set>
#include <thread>

#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;

namespace {

// y += x, on one thread; `wrong` is added to the reference.
Case sum_case(double wrong = 0) {
  Case c{.op = "sum_into",
         .shape = "16",
         .dtype = DType::f32,
         .args = {{"x", DType::f32, {16}, Role::input}, {"y", DType::f32, {16}, Role::updated}},
         .run = [](Stream& s, Arena&, const Tensors& t) {
           s.run("sum_into", [x = t["x"].as<float>(), y = t["y"].as<float>()] {
             for (int i = 0; i < 16; ++i) y[i] += x[i];
           });
         }};
  c.min_bytes = [](const Tensors&) { return 192.0; };
  c.flops = [](const Tensors&) { return 16.0; };
  c.reference = [wrong](Values& v) {
    for (size_t i = 0; i < 16; ++i) v["y"][i] += v["x"][i] + wrong;
  };
  return c;
}

// Artificial ceilings: a pause counts as a copy of 1000 bytes.
Ceilings pausing() {
  return {.copy = Ceiling({{"a pause", 1000, [] {
                              return seconds_of(
                                  [] { std::this_thread::sleep_for(std::chrono::microseconds(20)); });
                            }}})};
}

constexpr Limits kLimits{.seconds = 0.02, .cache_bytes = 256};

Result measured(const Case& c, const std::vector<Case>& tests) {
  Ceilings ceilings = pausing();
  return Harness(Device::cpu(), tests, ceilings, kLimits).measure(c);
}

}  // namespace

TEST_CASE("median and percentiles interpolate linearly between samples") {
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 2, 3}, 0.5) == 2.5);
  CHECK(quantile({7}, 0.9) == 7);
  const Spread s = spread({10, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(s.median == 5);
  CHECK(s.p10 == doctest::Approx(1));
  CHECK(s.p90 == doctest::Approx(9));
  CHECK(test::error_of([] { quantile({}, 0.5); }) == "quantile of an empty set of samples");
}

TEST_CASE("copies of the arguments exceed three times the cache, are at least two, and fit memory") {
  const auto copies = [](int64_t bytes) {
    return copies_to_rotate(bytes, {.cache_bytes = 100, .memory_bytes = 1000});
  };
  CHECK(copies(400) == 2);
  CHECK(copies(150) == 3);  // two copies equal three caches, but do not exceed them
  CHECK(copies(10) == 31);
  CHECK(copies(600) == 1);  // two do not fit
  CHECK(copies(5000) == 1);
  CHECK(copies_to_rotate(1, {.cache_bytes = 1 << 20}) == kMaxCopies);
}

TEST_CASE("a filter selects the cases whose labels contain all words, and no match is an error") {
  const std::vector<Case> all = all_cases(Scale::test);
  const std::vector<Case> some = select_cases(all, {"rmsnorm_forward", "bf16"});
  CHECK(some.size() < all.size());
  for (const Case& c : some) {
    CHECK(c.op == "rmsnorm_forward");
    CHECK(c.dtype == DType::bf16);
  }
  CHECK(select_cases(all, {}).size() == all.size());
  std::set<std::string> ops;
  for (const Case& c : select_cases(all, {"rmsnorm_forward|swiglu_forward|no such op", "bf16"}))
    ops.insert(c.op);
  CHECK(ops == std::set<std::string>{"rmsnorm_forward", "swiglu_forward"});
  const std::vector<std::pair<std::string, DType>> spelled{
      {"f32", DType::f32}, {"fp32", DType::f32}, {"f16", DType::f16}, {"fp16", DType::f16}};
  for (const auto& [word, dtype] : spelled)
    for (const Case& c : select_cases(all, {"swiglu", word})) CHECK_MESSAGE(c.dtype == dtype, label(c));
  CHECK(test::error_of([&] {
          select_cases(all, {"rmsnorm", "f37"});
        }) == "no case matches \"rmsnorm f37\"; --list prints all cases");
}

TEST_CASE("a correct op is timed") {
  const Result r = measured(sum_case(), {sum_case()});
  CHECK(r.was_timed());
  CHECK(r.samples >= 1);
  CHECK(r.copies == 7);  // of 128 bytes, to exceed 3 x 256
  CHECK(r.seconds.p10 <= r.seconds.median);
  CHECK(r.seconds.median <= r.seconds.p90);
  CHECK(r.copy_rate > 0);
  CHECK(r.matrix_rate == 0);
  CHECK(r.floor_seconds() == doctest::Approx(192 / r.copy_rate));
}

TEST_CASE("a wrong op is not timed, nor is one that no test case checks") {
  const Result wrong = measured(sum_case(), {sum_case(), sum_case(0.5)});
  CHECK_FALSE(wrong.was_timed());
  CHECK(wrong.accuracy.error > wrong.accuracy.tolerance);
  CHECK(wrong.samples == 0);
  const Result nan = measured(sum_case(), {sum_case(std::nan(""))});
  CHECK_FALSE(nan.was_timed());

  Case other = sum_case();
  other.dtype = DType::bf16;
  const Result unchecked = measured(sum_case(), {other});
  CHECK_FALSE(unchecked.was_timed());
  CHECK(unchecked.accuracy.worst.empty());
}

TEST_CASE("the accuracy comes from the test case closest to its tolerance") {
  Case lax = sum_case(0.01);
  lax.tolerance_factor = 1e3;
  lax.shape = "lax";
  Case exact = sum_case();
  Ceilings ceilings = pausing();
  Harness harness(Device::cpu(), {exact, lax, exact}, ceilings, kLimits);
  CHECK(harness.accuracy(exact).worst == label(lax));
  CHECK(harness.accuracy(exact).passed());
}

TEST_CASE("an op without a CUDA kernel is skipped on a GPU, with the reason") {
  Ceilings ceilings = pausing();
  const Result r = Harness(Device::cuda(0), {sum_case()}, ceilings, kLimits).measure(sum_case());
  CHECK(r.skipped == "no CUDA kernel");
  CHECK_FALSE(r.was_timed());
}

TEST_CASE("timed calls cycle through copies with equal values") {
  Case c = sum_case();
  std::vector<const float*> seen;
  std::set<float> first_values;
  c.run = [&](Stream& s, Arena&, const Tensors& t) {
    if (s.planning()) return;
    seen.push_back(t["x"].as<float>());
    first_values.insert(t["x"].as<float>()[0]);
  };
  const Result r = measured(c, {sum_case()});
  REQUIRE(seen.size() > 2 * static_cast<size_t>(r.copies));
  CHECK(std::set<const float*>(seen.begin(), seen.begin() + r.copies).size() ==
        static_cast<size_t>(r.copies));
  CHECK(std::equal(seen.begin(), seen.begin() + r.copies, seen.begin() + r.copies));
  CHECK(first_values.size() == 1);
  CHECK(*first_values.begin() != 0);
}

TEST_CASE("the arguments of an op that doubles its output are reset before it overflows") {
  Case c = sum_case();
  float largest = 0;
  int64_t calls = 0;
  c.run = [&](Stream& s, Arena&, const Tensors& t) {
    if (s.planning()) return;
    float* y = t["y"].as<float>();
    for (int i = 0; i < 16; ++i) largest = std::max(largest, std::abs(y[i] *= 2));
    ++calls;
  };
  const Result r = measured(c, {sum_case()});
  CHECK(calls > 16 * r.copies);  // twice as many as the bound below allows without a reset
  CHECK(largest <= 1.5f * 256);
}
