#include "kernels/gelu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

constexpr GeluKind kKinds[] = {GeluKind::tanh, GeluKind::erf, GeluKind::quick};

float gelu(float x, GeluKind kind = GeluKind::tanh) {
  StreamSet streams(Device::cpu());
  float y[1];
  gelu_forward(streams.add("compute"), {.y = tensor_of(y, {1}), .x = tensor_of(&x, {1}), .kind = kind});
  return y[0];
}

struct Slice {
  std::vector<float> x, y, dx;
};
// Values and slopes at points between -range and range.
Slice sweep(GeluKind kind, float range) {
  constexpr int kPoints = 20001;
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Slice s{.x = std::vector<float>(kPoints), .y = s.x, .dx = s.x};
  for (int i = 0; i < kPoints; ++i) s.x[i] = range * static_cast<float>(2 * i - kPoints + 1) / (kPoints - 1);
  std::vector<float> ones(kPoints, 1.0f);
  const auto tensor = [](std::vector<float>& v) { return tensor_of(v.data(), {kPoints}); };
  gelu_forward(stream, {.y = tensor(s.y), .x = tensor(s.x), .kind = kind});
  gelu_backward(stream, {.dx = tensor(s.dx), .dy = tensor(ones), .x = tensor(s.x), .kind = kind});
  stream.sync();
  return s;
}

}  // namespace

TEST_CASE("gelu matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("gelu")) {
    CAPTURE(label(c));
    const bool erf = c.shape.ends_with("erf"), quick = c.shape.ends_with("quick");
    CHECK(test::golden_error(c, str(erf     ? "gelu_erf_"
                                    : quick ? "gelu_quick_"
                                            : "gelu_",
                                    c.dtype)) <= tolerance(c));
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

// The error of e^-z grows as z, which is 18 at the ends of the range. 1 + erf would lose all digits there.
TEST_CASE("gelu with erf has seven digits of the exact value, also far left") {
  const Slice s = sweep(GeluKind::erf, 6.0f);
  double worst = 0, worst_slope = 0;
  for (size_t i = 0; i < s.x.size(); ++i) {
    const double x = s.x[i], p = std::erfc(-x / std::numbers::sqrt2) / 2;
    const double bell = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
    if (x != 0) worst = std::max(worst, std::abs(s.y[i] / (x * p) - 1));
    worst_slope = std::max(worst_slope, std::abs(s.dx[i] - (p + x * bell)));
  }
  CHECK(worst <= 1.5e-6);
  CHECK(worst_slope <= 3e-7);
}

// The slope has the error of 1 - P, which is 2^-24 far right, times 1.702 x.
TEST_CASE("the quick gelu has seven digits of the exact value, also far left") {
  const Slice s = sweep(GeluKind::quick, 10.0f);
  double worst = 0, worst_slope = 0;
  for (size_t i = 0; i < s.x.size(); ++i) {
    const double x = s.x[i], p = 1 / (1 + std::exp(-1.702 * x));
    if (x != 0) worst = std::max(worst, std::abs(s.y[i] / (x * p) - 1));
    worst_slope = std::max(worst_slope, std::abs(s.dx[i] - p * (1 + 1.702 * x * (1 - p))));
  }
  CHECK(worst <= 1.5e-6);
  CHECK(worst_slope <= 17 * 0x1p-24);
}

TEST_CASE("gelu is the identity far right and zero far left") {
  for (const GeluKind kind : kKinds) {
    CAPTURE(kind);
    CHECK(gelu(1e6f, kind) == 1e6f);
    CHECK(gelu(-1e6f, kind) == 0.0f);
    CHECK(gelu(0.0f, kind) == 0.0f);
    CHECK(std::isnan(gelu(std::numeric_limits<float>::quiet_NaN(), kind)));
  }
}

TEST_CASE("gelu works in place, forward over x and backward over dy or x") {
  StreamSet streams(Device::cpu());
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
  StreamSet streams(Device::cpu());
  float x[3] = {};
  bf16 y[3];
  CHECK(test::error_of([&] {
          gelu_forward(streams.add("compute"), {.y = tensor_of(y, {3}), .x = tensor_of(x, {3})});
        }) == "gelu_forward: y is bf16 (3), must be like x f32 (3)");
}
