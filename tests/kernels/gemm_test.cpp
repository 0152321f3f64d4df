#include "kernels/gemm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "runtime/parallel.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

std::string error_of_shapes(const Shape& c, const Shape& a, const Shape& b, DType c_dtype = DType::f32) {
  StreamGroup streams(Device::cpu(), {.planning = true});
  Arena scratch("scratch", Device::cpu());
  return test::error_of([&] {
    gemm(streams.add("compute"), scratch,
         {.c = {nullptr, c_dtype, c, {}},
          .a = {nullptr, DType::f32, a, {}},
          .b = {nullptr, DType::f32, b, {}}});
  });
}

}  // namespace

TEST_CASE("gemm and its bias gradient equal the independent framework in f32 and bf16") {
  for (const Case& c : bench::golden_cases("gemm")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str(c.op, '_', c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("gemm names the shapes that do not fit") {
  CHECK(error_of_shapes({2, 4}, {2, 3}, {4, 4}) == "gemm: c (2, 4) = a (2, 3) b (4, 4) does not fit");
  CHECK(error_of_shapes({2, 5}, {2, 3}, {3, 4}) == "gemm: c (2, 5) = a (2, 3) b (3, 4) does not fit");
  CHECK(error_of_shapes({2, 4}, {2, 3}, {12}) == "gemm: a (2, 3), b (12) and c (2, 4) must be matrices");
  CHECK(error_of_shapes({2, 4}, {2, 3}, {3, 4}, DType::bf16) ==
        "gemm: c is bf16, a is f32, b is f32; a and b must agree, c must be f32 or like them");
}

TEST_CASE("gemm hands on NaN and infinity, and only to their row") {
  StreamGroup streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float a[4] = {NAN, 1, 2, INFINITY}, b[4] = {1, 1, 1, 1}, c[4] = {};
  const Gemm g{.c = tensor_of(c, {2, 2}), .a = tensor_of(a, {2, 2}), .b = tensor_of(b, {2, 2})};
  Arena scratch("scratch", Device::cpu());
  StreamGroup planning(Device::cpu(), {.planning = true});
  gemm(planning.add("compute"), scratch, g);
  scratch.commit();
  gemm(stream, scratch, g);
  CHECK(std::isnan(c[0]));
  CHECK(c[2] == INFINITY);
}

TEST_CASE("gemm computes one shape for several threads at once, each its own matrices") {
  constexpr int64_t n = 24;
  constexpr int kCalls = 20000;  // two calls must meet within a few instructions
  std::atomic<int> wrong = 0;
  parallel_for(2, [&](int64_t task) {
    StreamGroup streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
    Stream& stream = streams.add("compute");
    const float value = static_cast<float>(task + 1);
    std::vector<float> a(n * n, value), b(n * n, 1.0f), c(n * n), expected(n * n, value * n);
    const Gemm g{
        .c = tensor_of(c.data(), {n, n}), .a = tensor_of(a.data(), {n, n}), .b = tensor_of(b.data(), {n, n})};
    Arena scratch("scratch", Device::cpu());
    gemm(planning.add("compute"), scratch, g);
    scratch.commit();
    for (int call = 0; call < kCalls; ++call) {
      std::fill(c.begin(), c.end(), -1.0f);
      gemm(stream, scratch, g);
      wrong += c != expected;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("gemm gives the same bits on 1, 2 and 3 threads where c has many tiles") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(dtype);
    const auto run = [&](int threads) {
      const int before = thread_count();
      set_thread_count(threads);
      StreamGroup streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
      Stream &stream = streams.add("compute"), &dry = planning.add("compute");
      Arena arena("arguments", Device::cpu()), scratch("scratch", Device::cpu());
      const auto make = [&] {
        return Gemm{.c = arena.alloc(DType::f32, {1040, 530}),
                    .a = arena.alloc(dtype, {200, 1040}),
                    .b = arena.alloc(dtype, {530, 200}),
                    .transpose_a = true,
                    .transpose_b = true};
      };
      gemm(dry, scratch, make());
      arena.commit();
      scratch.commit();
      const Gemm g = make();
      for (const Tensor& t : {g.a, g.b}) {
        std::vector<double> values(t.size());
        for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
        bench::from_doubles(t, values);
      }
      gemm(stream, scratch, g);
      set_thread_count(before);
      return bench::to_doubles(g.c);
    };
    const auto one = run(1);
    CHECK(run(2) == one);
    CHECK(run(3) == one);
  }
}
