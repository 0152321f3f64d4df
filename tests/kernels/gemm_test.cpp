#include "kernels/gemm.h"

#include <cmath>

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

TEST_CASE("gemm equals the independent framework in f32 and bf16") {
  for (const Case& c : bench::golden_cases("gemm")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("gemm_", c.dtype)) <= tolerance(c));
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
