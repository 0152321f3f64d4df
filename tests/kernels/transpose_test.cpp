#include "kernels/transpose.h"

#include <vector>

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a transposed matrix has the columns of the other as rows") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  for (const auto& [rows, columns] : {std::pair{1, 1}, {3, 5}, {200, 7}, {64, 64}, {5, 300}}) {
    const auto size = static_cast<size_t>(rows * columns);
    std::vector<float> x(size), y(size, -1);
    for (size_t i = 0; i < size; ++i) x[i] = static_cast<float>(i);
    transpose(stream, {.y = tensor_of(y.data(), {columns, rows}), .x = tensor_of(x.data(), {rows, columns})});
    stream.sync();
    bool same = true;
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < columns; ++c) {
        const auto at = static_cast<size_t>(c * rows + r);
        same = same && y[at] == static_cast<float>(r * columns + c);
      }
    CHECK(same);
  }
  std::vector<float> x(6), y(6);
  CHECK(test::error_of([&] {
          transpose(stream, {.y = tensor_of(y.data(), {2, 3}), .x = tensor_of(x.data(), {2, 3})});
        }) ==
        "transpose: x is f32 (2, 3), y is f32 (2, 3): y must have the columns of x as rows, in f32, bf16 or "
        "f16");
}
