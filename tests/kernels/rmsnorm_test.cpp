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
  StreamGroup streams(Device::cpu());
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

TEST_CASE("rmsnorm of a row of zeros is zero") {
  StreamGroup streams(Device::cpu());
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
  StreamGroup streams(Device::cpu());
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
    StreamGroup planning(Device::cpu(), {.planning = true});
    rmsnorm_backward(planning.add("plan"), scratch, a);
    CHECK((scratch.peak() == 0) == frozen);
    scratch.commit();
    rmsnorm_backward(stream, scratch, a);
    return dx;
  };
  CHECK(dx_of(true) == dx_of(false));
}
