#include "kernels/rmsnorm.h"

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

TEST_CASE("rmsnorm matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("rmsnorm")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("rmsnorm_", c.dtype)) <= tolerance(c));
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
        "rmsnorm_forward: w is f32 (2), x is f32 (2, 3); w must have the dtype and last dimension of x");
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
