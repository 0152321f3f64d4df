#include "kernels/rmsnorm.h"

#include <array>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

TEST_CASE("rmsnorm matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("rmsnorm")) {
    CAPTURE(label(c));
    const bool gemma = c.shape.find("gemma") != std::string::npos;
    CHECK(test::golden_error(c, str(gemma ? "rmsnorm_gemma_" : "rmsnorm_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("rmsnorm reports a weight that does not fit x") {
  StreamSet streams(Device::cpu());
  float x[6] = {}, w[2] = {}, rstd[2];
  const std::string error = test::error_of([&] {
    rmsnorm_forward(streams.add("compute"), {.y = tensor_of(x, {2, 3}),
                                             .rstd = tensor_of(rstd, {2}),
                                             .x = tensor_of(x, {2, 3}),
                                             .w = tensor_of(w, {2}),
                                             .eps = 1e-5f});
  });
  CHECK(error ==
        "rmsnorm_forward: w is f32 (2), x is f32 (2, 3); w must have the last dimension of x, and its dtype "
        "or f32");
}

TEST_CASE("rmsnorm reports an addend that is not like x") {
  StreamSet streams(Device::cpu());
  float x[6] = {}, w[3] = {}, rstd[2];
  const std::string error = test::error_of([&] {
    rmsnorm_forward(streams.add("compute"), {.y = tensor_of(x, {2, 3}),
                                             .rstd = tensor_of(rstd, {2}),
                                             .x = tensor_of(x, {2, 3}),
                                             .w = tensor_of(w, {3}),
                                             .addend = tensor_of(x, {3, 2}),
                                             .eps = 1e-5f});
  });
  CHECK(error == "rmsnorm_forward: addend is f32 (3, 2), must be like x f32 (2, 3)");
}

// 1 + 2^-9 rounds to 1 in bf16. 2^-8 + 1 would be halfway to the next value, and round to 1 as well.
TEST_CASE("rmsnorm rounds once, after the addend is added") {
  StreamSet streams(Device::cpu());
  bf16 x[1] = {bf16(2.0f)}, w[1] = {bf16(0x1p-9f)}, addend[1] = {bf16(0x1p-8f)}, y[1];
  float rstd[1];
  rmsnorm_forward(streams.add("compute"), {.y = tensor_of(y, {1, 1}),
                                           .rstd = tensor_of(rstd, {1}),
                                           .x = tensor_of(x, {1, 1}),
                                           .w = tensor_of(w, {1}),
                                           .addend = tensor_of(addend, {1, 1}),
                                           .eps = 0,
                                           .offset = 1});
  CHECK(static_cast<float>(y[0]) == 1.0f + 0x1p-7f);
}

TEST_CASE("rmsnorm of a row of zeros is zero") {
  StreamSet streams(Device::cpu());
  float x[3] = {}, y[3] = {1, 1, 1}, w[3] = {1, 1, 1}, rstd[1];
  rmsnorm_forward(streams.add("compute"), {.y = tensor_of(y, {1, 3}),
                                           .rstd = tensor_of(rstd, {1}),
                                           .x = tensor_of(x, {1, 3}),
                                           .w = tensor_of(w, {3}),
                                           .eps = 1e-5f});
  CHECK(y[0] == 0.0f);
  CHECK(y[2] == 0.0f);
}

TEST_CASE("rmsnorm_backward of frozen parameters needs no scratch and gives the same dx") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  const auto dx_of = [&](bool frozen) {
    float x[10], dy[10], w[5] = {1, 2, 3, 4, 5}, dw[5] = {};
    float rstd[2] = {2, 0.75f};
    for (int i = 0; i < 10; ++i) x[i] = static_cast<float>(i % 4) - 1.3f, dy[i] = static_cast<float>(i % 3);
    std::array<float, 10> dx{};
    RmsNormBackward a{.dx = tensor_of(dx.data(), {2, 5}),
                      .dw = tensor_of(dw, {5}),
                      .dy = tensor_of(dy, {2, 5}),
                      .x = tensor_of(x, {2, 5}),
                      .w = tensor_of(w, {5}),
                      .rstd = tensor_of(rstd, {2})};
    if (frozen) a.dw = {};
    Arena scratch("scratch", Device::cpu());
    StreamSet planning(Device::cpu(), {.planning = true});
    rmsnorm_backward(planning.add("plan"), scratch, a);
    CHECK((scratch.peak() == 0) == frozen);
    scratch.commit();
    rmsnorm_backward(stream, scratch, a);
    return dx;
  };
  CHECK(dx_of(true) == dx_of(false));
}
