#include "kernels/grouped_product.h"

#include <cmath>
#include <utility>
#include <vector>

#include "tests/kernels/grouped_draw.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("products of segments have the values of their formula on the CPU") {
  test::Random random(3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int i = 0; i < 12; ++i) test::check_values(grouped_case(test::draw(random, dtype)), Device::cpu());
}

TEST_CASE("rows that are not used are not multiplied, and their products are zero") {
  constexpr int64_t kIn = 24, kOut = 40, kRows = 512;
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  std::vector<int32_t> offsets{0, 0, 320, 384, 448}, used(kRows, -1);
  for (const auto& [begin, end] : {std::pair{0, 259}, {320, 321}, {384, 448}})
    for (int row = begin; row < end; ++row) used[static_cast<size_t>(row)] = row;
  std::vector<float> a(kRows * kIn), w(4 * kOut * kIn), dy(kRows * kOut);
  const auto fill = [&](std::vector<float>& values, int64_t width, bool rows) {
    for (size_t i = 0; i < values.size(); ++i)
      if (!rows || used[i / static_cast<size_t>(width)] >= 0)
        values[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 16;
  };
  fill(a, kIn, true);
  fill(w, kIn, false);
  fill(dy, kOut, true);
  for (const bool says : {false, true}) {
    const Tensor numbers = says ? tensor_of(used.data(), {kRows}) : Tensor{};
    std::vector<float> y(kRows * kOut, NAN), dw(4 * kOut * kIn, NAN);
    Arena scratch("scratch", Device::cpu());
    const auto run = [&](Stream& on) {
      const Tensor at = tensor_of(offsets.data(), {5}), x = tensor_of(a.data(), {kRows, kIn});
      grouped_product(on, scratch,
                      {.c = tensor_of(y.data(), {kRows, kOut}),
                       .a = x,
                       .b = tensor_of(w.data(), {4, kOut, kIn}),
                       .offsets = at,
                       .used = numbers,
                       .transpose_b = true});
      grouped_product(on, scratch,
                      {.c = tensor_of(dw.data(), {4, kOut, kIn}),
                       .a = tensor_of(dy.data(), {kRows, kOut}),
                       .b = x,
                       .offsets = at,
                       .used = numbers,
                       .transpose_a = true});
    };
    StreamSet planning(Device::cpu(), {.planning = true});
    run(planning.add("compute"));
    scratch.commit();
    run(stream);
    stream.sync();
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t n = 0; n < kOut; ++n) {
        const int64_t e = row < 320 ? 1 : row < 384 ? 2 : 3;
        float sum = 0;
        for (int64_t k = 0; k < kIn; ++k)
          sum += a[static_cast<size_t>(row * kIn + k)] * w[static_cast<size_t>((e * kOut + n) * kIn + k)];
        CHECK(y[static_cast<size_t>(row * kOut + n)] == sum);  // small whole numbers over 256: exact
      }
    for (int64_t e = 0; e < 4; ++e)
      for (int64_t n = 0; n < kOut; ++n)
        for (int64_t k = 0; k < kIn; ++k) {
          float sum = 0;
          for (int32_t row = offsets[static_cast<size_t>(e)]; row < offsets[static_cast<size_t>(e + 1)];
               ++row)
            sum += dy[static_cast<size_t>(row * kOut + n)] * a[static_cast<size_t>(row * kIn + k)];
          CHECK(dw[static_cast<size_t>((e * kOut + n) * kIn + k)] == sum);
        }
  }
}

TEST_CASE("products of segments report what does not fit") {
  Arena scratch("scratch", Device::cpu());
  StreamSet streams(Device::cpu(), {.planning = true});
  Stream& stream = streams.add("compute");
  const auto error = [&](const Shape& c, const Shape& a, const Shape& b, int64_t segments) {
    return test::error_of([&] {
      grouped_product(stream, scratch,
                      {.c = {nullptr, DType::f32, c, {}},
                       .a = {nullptr, DType::f32, a, {}},
                       .b = {nullptr, DType::f32, b, {}},
                       .offsets = {nullptr, DType::i32, {segments + 1}, {}}});
    });
  };
  CHECK(error({128, 8}, {128, 16}, {2, 16, 8}, 2) == "");
  CHECK(error({128, 8}, {128, 16}, {3, 16, 8}, 2) ==
        "grouped_product: c (128, 8) = a (128, 16) b (3, 16, 8) in 2 segments: shapes do not fit");
  CHECK(error({100, 8}, {100, 16}, {2, 16, 8}, 2) == "grouped_product: 100 rows, must be a multiple of 64");
}
