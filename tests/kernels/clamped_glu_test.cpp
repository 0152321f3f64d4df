#include "kernels/clamped_glu.h"

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/stream.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

double unit(double gate, double up, double limit) {
  const double g = std::min(gate, limit), u = std::clamp(up, -limit, limit);
  return g / (1 + std::exp(-1.702 * g)) * (u + 1);
}

// 19 pairs, of which some are beyond a limit of 1.
std::vector<float> some_pairs() {
  std::vector<float> x;
  for (int i = 0; i < 19; ++i) {
    x.push_back(0.25f * static_cast<float>(i % 9) - 1.1f);
    x.push_back(0.31f * static_cast<float>(i % 11) - 1.63f);
  }
  return x;
}

}  // namespace

TEST_CASE("a clamped unit and its gradient follow the formula, and NaN stays NaN") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  std::vector<float> x = some_pairs(), y(19), dy(19), dx(38);
  for (size_t i = 0; i < dy.size(); ++i) dy[i] = 0.1f * static_cast<float>(i) - 0.7f;
  const Tensor pairs = tensor_of(x.data(), {1, 38});
  const auto run = [&] {
    clamped_glu_forward(stream, {.y = tensor_of(y.data(), {1, 19}), .x = pairs, .limit = 1});
    clamped_glu_backward(
        stream,
        {.dx = tensor_of(dx.data(), {1, 38}), .dy = tensor_of(dy.data(), {1, 19}), .x = pairs, .limit = 1});
    stream.sync();
  };
  run();
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < y.size(); ++i) {
    const double gate = static_cast<double>(x[2 * i]), up = static_cast<double>(x[2 * i + 1]);
    const auto slope = [&](double g, double u) {
      return static_cast<double>(dy[i]) *
             (unit(gate + g * kStep, up + u * kStep, 1) - unit(gate - g * kStep, up - u * kStep, 1)) /
             (2 * kStep);
    };
    CHECK(static_cast<double>(y[i]) == doctest::Approx(unit(gate, up, 1)).epsilon(1e-5));
    CHECK(std::abs(static_cast<double>(dx[2 * i]) - slope(1, 0)) < 1e-5);
    CHECK(std::abs(static_cast<double>(dx[2 * i + 1]) - slope(0, 1)) < 1e-5);
  }
  x[6] = x[21] = std::numeric_limits<float>::quiet_NaN();
  run();
  CHECK(std::isnan(y[3]));
  CHECK(std::isnan(y[10]));
  CHECK(std::isnan(dx[6]));
  CHECK(std::isnan(dx[20]));
}

TEST_CASE("a clamped unit names sizes that do not fit, and a limit that is none") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  std::vector<float> x(6), y(3);
  const auto error = [&](int64_t width, float limit) {
    return test::error_of([&] {
      clamped_glu_forward(
          stream, {.y = tensor_of(y.data(), {1, 3}), .x = tensor_of(x.data(), {1, width}), .limit = limit});
    });
  };
  CHECK(error(5, 1) ==
        "clamped_glu_forward: x is f32 (1, 5), y is f32 (1, 3): x must have a pair for each element");
  CHECK(error(6, 0) == "clamped_glu_forward: limit is 0, must be positive");
}
