#include "kernels/gelu.h"

#include <algorithm>
#include <cmath>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

float gelu(float x) {
  StreamGroup streams(Device::cpu());
  float y[1];
  gelu_forward(streams.add("compute"), {.y = tensor_of(y, {1}), .x = tensor_of(&x, {1})});
  return y[0];
}

}  // namespace

TEST_CASE("gelu matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("gelu")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("gelu_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("gelu has the values of GPT-2's") {
  const float expected[][2] = {{-3, -0.00363739208f}, {-1, -0.158808009f}, {-0.5f, -0.15428599f},
                               {0.5f, 0.34571401f},   {1, 0.841191991f},   {3, 2.99636261f}};
  for (const auto& [x, y] : expected) {
    CAPTURE(x);
    CHECK(std::abs(gelu(x) - y) <= 5e-7f * std::abs(y));
  }
}

TEST_CASE("gelu is the identity far right and zero far left") {
  CHECK(gelu(1e6f) == 1e6f);
  CHECK(gelu(-1e6f) == 0.0f);
  CHECK(gelu(0.0f) == 0.0f);
}

TEST_CASE("gelu works in place, forward over x and backward over dy or x") {
  StreamGroup streams(Device::cpu());
  Stream& stream = streams.add("compute");
  const float x[3] = {-0.5f, 0.25f, 2.0f}, dy[3] = {1.0f, -2.0f, 0.5f};
  float a[3], b[3], y[3], dx[3];
  const auto start_over = [&] {
    std::copy(x, x + 3, a);
    std::copy(dy, dy + 3, b);
  };
  const auto backward = [&](float* out) {
    gelu_backward(stream, {.dx = tensor_of(out, {3}), .dy = tensor_of(b, {3}), .x = tensor_of(a, {3})});
  };
  start_over();
  gelu_forward(stream, {.y = tensor_of(y, {3}), .x = tensor_of(a, {3})});
  backward(dx);
  gelu_forward(stream, {.y = tensor_of(a, {3}), .x = tensor_of(a, {3})});
  for (int i = 0; i < 3; ++i) CHECK(a[i] == y[i]);
  for (float* out : {a, b}) {
    start_over();
    backward(out);
    for (int i = 0; i < 3; ++i) CHECK(out[i] == dx[i]);
  }
}

TEST_CASE("gelu reports the dtypes if y does not fit x") {
  StreamGroup streams(Device::cpu());
  float x[3] = {};
  bf16 y[3];
  CHECK(test::error_of([&] {
          gelu_forward(streams.add("compute"), {.y = tensor_of(y, {3}), .x = tensor_of(x, {3})});
        }) == "gelu_forward: y is bf16 (3), must be like x f32 (3)");
}
