#include "kernels/elementwise.h"

#include <limits>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

TEST_CASE("cast, add and scale match PyTorch exactly, softcap within its tolerance") {
  for (const Case& c : bench::golden_cases("elementwise")) {
    CAPTURE(label(c));
    const DType from = c.args[0].dtype;
    CHECK(test::golden_error(c, str("elementwise_", from)) <= (c.op == "softcap" ? tolerance(c) : 0));
  }
}

TEST_CASE("a cast rounds once, to nearest even, and preserves infinities") {
  StreamSet streams(Device::cpu());
  float x[4] = {1.00390625f, 1.01171875f, -std::numeric_limits<float>::infinity(), 3e38f};
  bf16 y[4];
  f16 z[4];
  Stream& stream = streams.add("compute");
  cast(stream, {.y = tensor_of(y, {4}), .x = tensor_of(x, {4})});
  cast(stream, {.y = tensor_of(z, {4}), .x = tensor_of(x, {4})});
  CHECK(y[0].bits == 0x3f80);  // halfway between 1 and 1 + 2^-7: to even
  CHECK(y[1].bits == 0x3f82);  // halfway between 1 + 2^-7 and 1 + 2^-6: to even
  CHECK(y[2].bits == 0xff80);
  CHECK(z[3].bits == 0x7c00);
}

TEST_CASE("add works in place of either operand") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float a[2] = {1, 2}, b[2] = {10, 20};
  add(stream, {.y = tensor_of(b, {2}), .a = tensor_of(a, {2}), .b = tensor_of(b, {2})});
  CHECK(b[0] == 11.0f);
  CHECK(b[1] == 22.0f);
  add(stream, {.y = tensor_of(a, {2}), .a = tensor_of(a, {2}), .b = tensor_of(a, {2})});
  CHECK(a[1] == 4.0f);
}

TEST_CASE("scale works in place") {
  StreamSet streams(Device::cpu());
  float x[2] = {3, -4};
  scale(streams.add("compute"), {.y = tensor_of(x, {2}), .x = tensor_of(x, {2}), .factor = 0.5f});
  CHECK(x[0] == 1.5f);
  CHECK(x[1] == -2.0f);
}

TEST_CASE("elementwise ops report shapes and dtypes that do not fit") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float x[3] = {};
  int32_t tokens[3] = {};
  CHECK(test::error_of([&] { cast(stream, {.y = tensor_of(x, {2}), .x = tensor_of(x, {3})}); }) ==
        "cast: y is f32 (2), x is f32 (3); they must have the same number of elements");
  CHECK(test::error_of([&] { cast(stream, {.y = tensor_of(x, {3}), .x = tensor_of(tokens, {3})}); }) ==
        "cast: from i32 to f32; both must be f32, bf16 or f16");
  CHECK(test::error_of([&] {
          const Tensor y = tensor_of(reinterpret_cast<bf16*>(x), {3});
          cast(stream, {.y = y, .x = tensor_of(x, {3})});
        }) == "cast: from f32 to bf16 in place; x and y must not share memory");
  CHECK(test::error_of([&] {
          add(stream, {.y = tensor_of(x, {3}), .a = tensor_of(x, {3}), .b = tensor_of(x, {2})});
        }) == "add: b is f32 (2), must be like y f32 (3)");
}
