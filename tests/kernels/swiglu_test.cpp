#include "kernels/swiglu.h"

#include <cmath>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

TEST_CASE("swiglu matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("swiglu")) {
    CAPTURE(label(c));
    const bool gelu = c.shape.find("gelu") != std::string::npos;
    CHECK(test::golden_error(c, str(gelu ? "geglu_" : "swiglu_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("swiglu gates with x / (1 + e^-x), even if e^-x overflows") {
  StreamSet streams(Device::cpu());
  float gate[5] = {1, -1, 0, 100, -100}, up[5] = {1, 1, 1, 1, 1}, y[5];
  swiglu_forward(streams.add("compute"),
                 {.y = tensor_of(y, {1, 5}), .gate = tensor_of(gate, {1, 5}), .up = tensor_of(up, {1, 5})});
  CHECK(std::abs(y[0] - 0.731058579f) < 1e-7f);
  CHECK(std::abs(y[1] + 0.268941421f) < 1e-7f);
  CHECK(y[2] == 0.0f);
  CHECK(y[3] == 100.0f);
  CHECK(y[4] == 0.0f);
}

TEST_CASE("swiglu_backward works in place of gate and up") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float both[6] = {0.5f, -1, 2, 3, 0.25f, -2}, gradients[6],
        dy[3] = {1, 2, -1};  // one row of gates, then ups
  const auto backward = [&](float* out) {
    const Tensor in = tensor_of(both, {1, 6}), d = tensor_of(out, {1, 6});
    swiglu_backward(stream, {.dgate = packed_columns(d, 0, {1, 3}),
                             .dup = packed_columns(d, 3, {1, 3}),
                             .dy = tensor_of(dy, {1, 3}),
                             .gate = packed_columns(in, 0, {1, 3}),
                             .up = packed_columns(in, 3, {1, 3}),
                             .row_stride = 6});
  };
  backward(gradients);
  backward(both);
  for (int i = 0; i < 6; ++i) CHECK(both[i] == gradients[i]);
}

TEST_CASE("swiglu reports an up that does not fit gate, and a stride below the row size") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float gate[6] = {}, up[4] = {}, y[6];
  CHECK(test::error_of([&] {
          swiglu_forward(
              stream,
              {.y = tensor_of(y, {2, 3}), .gate = tensor_of(gate, {2, 3}), .up = tensor_of(up, {2, 2})});
        }) == "swiglu_forward: up is f32 (2, 2), must be like gate f32 (2, 3)");
  CHECK(test::error_of([&] {
          swiglu_forward(stream, {.y = tensor_of(y, {2, 3}),
                                  .gate = tensor_of(gate, {2, 3}),
                                  .up = tensor_of(gate, {2, 3}),
                                  .row_stride = 2});
        }) == "swiglu_forward: row stride is 2, must be 0 or at least the row size 3");
}

TEST_CASE("packed columns outside the packed matrix are refused") {
  float data[8] = {};
  CHECK(test::error_of([&] {
          packed_columns(tensor_of(data, {2, 4}), 2, {2, 3});
        }) == "columns [2, 5) as (2, 3) exceed the packed tensor (2, 4)");
  CHECK(test::error_of([&] {
          packed_columns(tensor_of(data, {2, 4}), 0, {1, 3});
        }) == "columns [0, 3) as (1, 3) exceed the packed tensor (2, 4)");
}
