#include "kernels/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

const RopeScaling kLlama3{.kind = RopeScaling::Kind::llama3,
                          .factor = 8,
                          .low_frequency_factor = 1,
                          .high_frequency_factor = 4,
                          .original_positions = 8192};

std::vector<float> table_of(int64_t P, int64_t D, double theta, const RopeScaling& scaling = {}) {
  std::vector<float> table(static_cast<size_t>(P * D));
  rope_table(tensor_of(table.data(), {P, D}), theta, scaling);
  return table;
}

bool near(double value, double expected, double relative) {
  return std::abs(value - expected) <= relative * std::abs(expected);
}

}  // namespace

TEST_CASE("rope matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("rope")) {
    CAPTURE(label(c));
    const bool axes = c.shape.find("by") != std::string::npos;
    CHECK(test::golden_error(c, str(axes ? "rope_axes_" : "rope_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("rope rotates the pairs (0, 2) and (1, 3) of a head of four") {
  StreamSet streams(Device::cpu());
  std::vector<float> table = table_of(2, 4, 10000);
  float x[4] = {1, 2, 3, 4}, y[4];
  int32_t positions[1] = {1};
  rope_forward(streams.add("compute"), {.y = tensor_of(y, {1, 1, 4}),
                                        .x = tensor_of(x, {1, 1, 4}),
                                        .positions = tensor_of(positions, {1}),
                                        .table = tensor_of(table.data(), {2, 4})});
  const double expected[] = {-1.98411065, 1.95990067, 2.4623779, 4.01979967};
  for (int i = 0; i < 4; ++i) CHECK(near(y[i], expected[i], 2e-7));
}

TEST_CASE("llama3 scaling keeps high frequencies, divides low ones and interpolates between them") {
  const std::vector<double> base = rope_frequencies(128, 500000),
                            scaled = rope_frequencies(128, 500000, kLlama3);
  for (size_t i = 0; i <= 28; ++i) CHECK(scaled[i] == base[i]);
  for (size_t i = 29; i <= 34; ++i) CHECK((scaled[i] < base[i] && scaled[i] > base[i] / 8));
  for (size_t i = 35; i < 64; ++i) CHECK(scaled[i] == base[i] / 8);

  struct Golden {
    size_t i;
    double base, scaled;
  };
  const Golden table[] = {
      {0, 1, 1},
      {1, 0.8146172339, 0.8146172339},
      {16, 3.760603093e-2, 3.760603093e-2},
      {28, 3.211445995e-3, 3.211445995e-3},
      {29, 2.616099253e-3, 2.166570764e-3},
      {30, 2.131119537e-3, 1.371893568e-3},
      {31, 1.736046702e-3, 8.567514129e-4},
      {32, 1.414213562e-3, 5.248461610e-4},
      {33, 1.152042740e-3, 3.126937504e-4},
      {34, 9.384738704e-4, 1.785078128e-4},
      {35, 7.644969883e-4, 9.556212354e-5},
      {36, 6.227724219e-4, 7.784655274e-5},
      {40, 2.742481757e-4, 3.428102196e-5},
      {63, 2.455140791e-6, 3.068925989e-7},
  };
  for (const Golden& row : table) {
    CAPTURE(row.i);
    CHECK(near(base[row.i], row.base, 1e-9));
    CHECK(near(scaled[row.i], row.scaled, 1e-9));
  }
}

TEST_CASE("frequencies of YaRN and longrope are those of transformers") {
  const auto golden = test::load_golden("rope_scalings");
  const RopeScaling yarn{.kind = RopeScaling::Kind::yarn, .factor = 8, .original_positions = 512};
  RopeScaling betas = yarn, smooth = yarn, longrope{.kind = RopeScaling::Kind::longrope};
  betas.beta_fast = 16;
  betas.beta_slow = 2;
  smooth.truncate = false;
  RopeScaling beyond = longrope;
  for (int i = 0; i < 32; ++i) {
    longrope.divisors.push_back(1 + i / 20.0);
    beyond.divisors.push_back(1 + i / 2.0);
  }
  const std::map<std::string, RopeScaling> cases{{"yarn", yarn},
                                                 {"yarn_betas", betas},
                                                 {"yarn_smooth", smooth},
                                                 {"longrope", longrope},
                                                 {"longrope_long", beyond}};
  for (const auto& [name, scaling] : cases) {
    CAPTURE(name);
    const std::vector<double> frequencies = rope_frequencies(64, 10000, scaling);
    const std::vector<double>& expected = golden.at(name).values;
    REQUIRE(frequencies.size() == expected.size());
    for (size_t i = 0; i < expected.size(); ++i) CHECK(near(frequencies[i], expected[i], 1e-6));
  }
}

TEST_CASE("the attention factor multiplies cosines and sines") {
  const std::vector<float> plain = table_of(5, 4, 100), scaled = table_of(5, 4, 100, {.attention_factor = 2});
  for (size_t i = 0; i < plain.size(); ++i) CHECK(scaled[i] == 2 * plain[i]);
}

TEST_CASE("linear scaling divides every frequency") {
  const std::vector<double> base = rope_frequencies(8, 10000);
  const std::vector<double> scaled =
      rope_frequencies(8, 10000, {.kind = RopeScaling::Kind::linear, .factor = 4});
  for (size_t i = 0; i < 4; ++i) CHECK(scaled[i] == base[i] / 4);
}

TEST_CASE("the rope table holds cosines and sines of the scaled angles, rounded once from double") {
  const int64_t P = 3000, D = 128;
  const std::vector<float> table = table_of(P, D, 500000, kLlama3);
  const std::vector<double> frequencies = rope_frequencies(D, 500000, kLlama3);
  for (const int64_t p : {0, 1, 777, 2999})
    for (const int64_t i : {0, 5, 30, 63}) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
      CHECK(table[static_cast<size_t>(p * D + i)] == static_cast<float>(std::cos(angle)));
      CHECK(table[static_cast<size_t>(p * D + D / 2 + i)] == static_cast<float>(std::sin(angle)));
    }
}

TEST_CASE("angles at position 1,000,000 are those of long double, with every scaling") {
  constexpr int64_t kPosition = 1'000'000, R = 8;
  constexpr double kTheta = 500000;
  const RopeScaling yarn{.kind = RopeScaling::Kind::yarn, .factor = 32, .original_positions = 32768},
      longrope{.kind = RopeScaling::Kind::longrope, .divisors = {1, 1.5, 20, 60}, .attention_factor = 1.2};
  RopeScaling llama3 = kLlama3;
  llama3.factor = 128;
  for (const RopeScaling& scaling : {RopeScaling{}, llama3, yarn, longrope}) {
    CAPTURE(static_cast<int>(scaling.kind));
    const std::vector<double> scaled = rope_frequencies(R, kTheta, scaling),
                              base = rope_frequencies(R, kTheta);
    const std::vector<float> table = table_of(kPosition + 1, R, kTheta, scaling);
    for (int64_t i = 0; i < R / 2; ++i) {
      CAPTURE(i);
      const auto at = static_cast<size_t>(i);
      // The scaling of a frequency is a factor, whose error is that of a double.
      const long double exact =
          std::pow(static_cast<long double>(kTheta), -2.0L * static_cast<long double>(i) / R) *
          (static_cast<long double>(scaled[at]) / static_cast<long double>(base[at]));
      const long double angle = kPosition * exact, factor = scaling.attention_factor;
      // One rounding to fp32, and an angle that errs by a few units in the last place of a double.
      const long double tolerance = 0x1p-24L * factor + 1e-9L;
      const float* const row = table.data() + kPosition * R;
      CHECK(std::abs(static_cast<long double>(row[i]) - std::cos(angle) * factor) <= tolerance);
      CHECK(std::abs(static_cast<long double>(row[R / 2 + i]) - std::sin(angle) * factor) <= tolerance);
    }
  }
}

TEST_CASE("rope rotates q and k in a packed matrix and leaves v unchanged; backward rotates them back") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  constexpr int64_t T = 3, D = 4, width = 4 * D;  // two heads of q, one of k, one of v
  std::vector<float> table = table_of(20, D, 10000), before(T * width);
  for (size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i % 7) - 3;
  std::vector<float> packed = before;
  int32_t positions[T] = {5, 19, 1};
  const Tensor q_and_k = packed_columns(tensor_of(packed.data(), {T, width}), 0, {T, 3, D});
  rope_forward(stream, {.y = q_and_k,
                        .x = q_and_k,
                        .positions = tensor_of(positions, {T}),
                        .table = tensor_of(table.data(), {20, D}),
                        .y_stride = width,
                        .x_stride = width});
  for (size_t i = 0; i < packed.size(); ++i)
    if (i % width >= 3 * D) CHECK(packed[i] == before[i]);
  CHECK(std::abs(packed[0] - before[0]) > 0.5f);
  rope_backward(stream, {.dx = q_and_k,
                         .dy = q_and_k,
                         .positions = tensor_of(positions, {T}),
                         .table = tensor_of(table.data(), {20, D}),
                         .dx_stride = width,
                         .dy_stride = width});
  for (size_t i = 0; i < packed.size(); ++i) CHECK(std::abs(packed[i] - before[i]) < 1e-6f);
}

TEST_CASE("rope reports a position outside the table with its token and the bound") {
  std::vector<float> table = table_of(16, 2, 10000);
  for (const int32_t outside : {16, -1}) {
    StreamSet streams(Device::cpu());
    float x[6] = {};
    int32_t positions[3] = {0, 15, outside};
    const std::string error = test::error_of([&] {
      rope_forward(streams.add("compute"), {.y = tensor_of(x, {3, 1, 2}),
                                            .x = tensor_of(x, {3, 1, 2}),
                                            .positions = tensor_of(positions, {3}),
                                            .table = tensor_of(table.data(), {16, 2})});
    });
    CHECK(error == str("rope_forward: position ", outside, " of token 2 is outside the table of 16"));
  }
}

TEST_CASE("rope on several axes that agree has the bits of one axis") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  constexpr int64_t T = 3, H = 2, D = 80, P = 50;
  std::vector<float> table = table_of(P, D, 10000);
  int32_t positions[3][T];
  for (auto& axis : positions) std::copy_n(std::array{7, 0, 49}.begin(), T, axis);
  std::vector<float> x(T * H * D), one(x.size()), y(x.size());
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  const auto rotate = [&](std::vector<float>& to, const Tensor& at, const RopeSections& sections) {
    rope_forward(stream, {.y = tensor_of(to.data(), {T, H, D}),
                          .x = tensor_of(x.data(), {T, H, D}),
                          .positions = at,
                          .table = tensor_of(table.data(), {P, D}),
                          .sections = sections});
  };
  rotate(one, tensor_of(positions[0], {T}), {});
  for (const RopeSections& sections : {RopeSections{20, 20}, RopeSections{3, 5, 32}}) {
    rotate(y, tensor_of(positions[0], {sections[2] > 0 ? 3 : 2, T}), sections);
    CHECK(y == one);
  }
}

TEST_CASE("rope reads frequencies that two axes share from a table of its own") {
  std::vector<double> frequencies = rope_frequencies(4, 100);
  frequencies.insert(frequencies.end(), frequencies.begin(), frequencies.end());
  std::vector<float> table(3 * 8);
  rope_table(tensor_of(table.data(), {3, 8}), frequencies);
  for (const size_t half : {0, 4})
    for (const size_t i : {0, 1}) CHECK(table[16 + half + i] == table[16 + half + 2 + i]);
  CHECK(table[16 + 1] == static_cast<float>(std::cos(0.2)));
  CHECK(test::error_of([&] {
          rope_table(tensor_of(table.data(), {4, 6}), frequencies);
        }) == "rope_table: the table is (4, 6) on cpu, must be (positions, 8) on the cpu");
}

TEST_CASE("rope reports sections that do not fit its table, and positions without an axis") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float x[8] = {}, table[8] = {};
  int32_t positions[2] = {0, 8};
  const auto forward = [&](const Shape& shape, const RopeSections& sections) {
    return test::error_of([&] {
      rope_forward(stream, {.y = tensor_of(x, {1, 1, 8}),
                            .x = tensor_of(x, {1, 1, 8}),
                            .positions = tensor_of(positions, shape),
                            .table = tensor_of(table, {1, 8}),
                            .sections = sections});
    });
  };
  CHECK(forward({2, 1}, {2, 1}) ==
        "rope_forward: sections of 2, 1 and 0 pairs, must have 4 in total, as the table has");
  CHECK(forward({1}, {2, 2}) ==
        "rope_forward: positions are i32 (1), must be i32 with an element on each axis for each of 1 tokens");
  CHECK(forward({2, 1}, {2, 2}) == "rope_forward: position 8 of token 0 is outside the table of 1");
}

TEST_CASE("rope refuses odd heads, a table of another width and an invalid scaling") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float x[3] = {}, table[4] = {};
  int32_t positions[1] = {0};
  const auto forward = [&](int64_t D) {
    return test::error_of([&] {
      rope_forward(stream, {.y = tensor_of(x, {1, 1, D}),
                            .x = tensor_of(x, {1, 1, D}),
                            .positions = tensor_of(positions, {1}),
                            .table = tensor_of(table, {1, 4})});
    });
  };
  CHECK(forward(3) == "rope_forward: heads have 3 elements, must be even");
  CHECK(forward(2) ==
        "rope_forward: the table is f32 (1, 4), must be f32 (positions, 2 or a smaller even number)");
  float y[4] = {}, four[4] = {};
  CHECK(test::error_of([&] {
          rope_forward(stream, {.y = tensor_of(y, {1, 1, 4}),
                                .x = tensor_of(four, {1, 1, 4}),
                                .positions = tensor_of(positions, {1}),
                                .table = tensor_of(table, {1, 2})});
        }) == "rope_forward: rotates 2 of 4 elements, which must be in place");
  CHECK(test::error_of([] {
          rope_frequencies(8, 10000, {.kind = RopeScaling::Kind::longrope, .divisors = {1, 2}});
        }) == "rope scaling: there are 2 divisors, must be 4, one for each frequency");
  CHECK(test::error_of([] {
          rope_frequencies(4, 10000, {.kind = RopeScaling::Kind::linear, .factor = 0});
        }) == "rope scaling: factor is 0, must be positive");
}
