#include "kernels/grouped_product.h"

#include "tests/kernels/grouped_draw.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("products of segments have the values of their formula on the CPU") {
  test::Random random(3);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int i = 0; i < 12; ++i) test::check_values(grouped_case(test::draw(random, dtype)), Device::cpu());
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
