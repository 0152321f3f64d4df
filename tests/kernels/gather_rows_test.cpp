#include "kernels/gather_rows.h"

#include <algorithm>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

struct Small {
  StreamSet streams{Device::cpu()};
  Stream& stream = streams.add("compute");
  float x[6] = {1, 2, 3, 4, 5, 6}, y[8] = {-1, -2, -3, -4, -5, -6, -7, -8};
  int32_t index[3] = {3, -1, 0};

  GatherRows gather() {
    return {.y = tensor_of(x, {3, 2}), .x = tensor_of(y, {4, 2}), .index = tensor_of(index, {3})};
  }
  ScatterRows scatter(bool add) {
    return {.y = tensor_of(y, {4, 2}), .x = tensor_of(x, {3, 2}), .index = tensor_of(index, {3}), .add = add};
  }
};

}  // namespace

TEST_CASE("gathered and scattered rows match PyTorch exactly") {
  for (const Case& c : bench::golden_cases("gather_rows")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("gather_rows_", c.dtype)) == 0);
  }
}

TEST_CASE("a negative index gathers zeros and scatters nothing") {
  Small gathered, scattered, added;
  gather_rows(gathered.stream, gathered.gather());
  CHECK(std::vector<float>(gathered.x, gathered.x + 6) == std::vector<float>{-7, -8, 0, 0, -1, -2});
  scatter_rows(scattered.stream, scattered.scatter(false));
  CHECK(std::vector<float>(scattered.y, scattered.y + 8) == std::vector<float>{5, 6, -3, -4, -5, -6, 1, 2});
  scatter_rows(added.stream, added.scatter(true));
  CHECK(std::vector<float>(added.y, added.y + 8) == std::vector<float>{4, 4, -3, -4, -5, -6, -6, -6});
}

TEST_CASE("numbers may repeat in a gather") {
  Small s;
  std::fill_n(s.index, 3, 2);
  gather_rows(s.stream, s.gather());
  CHECK(std::vector<float>(s.x, s.x + 6) == std::vector<float>{-5, -6, -5, -6, -5, -6});
}

TEST_CASE("an index past the table is reported before a row is written") {
  Small s;
  s.index[2] = 4;
  CHECK(test::error_of([&] { gather_rows(s.stream, s.gather()); }) ==
        "gather_rows: index 4 at 2 is outside the table of 4 rows");
  CHECK(test::error_of([&] { scatter_rows(s.stream, s.scatter(false)); }) ==
        "scatter_rows: index 4 at 2 is outside the table of 4 rows");
  CHECK(s.x[0] == 1);
  CHECK(s.y[6] == -7);
}

TEST_CASE("shapes of gathered and scattered rows that do not fit are reported") {
  Small s;
  GatherRows gather = s.gather();
  gather.x = tensor_of(s.y, {2, 4});
  CHECK(test::error_of([&] { gather_rows(s.stream, gather); }) ==
        "gather_rows: x is f32 (2, 4), must be f32 (rows, 2)");
  gather = s.gather();
  gather.index = tensor_of(s.index, {2});
  CHECK(test::error_of([&] { gather_rows(s.stream, gather); }) ==
        "gather_rows: index is i32 (2), must be i32 with one element for each of 3 rows");
  ScatterRows scatter = s.scatter(false);
  scatter.x = tensor_of(s.y, {3, 2});
  CHECK(test::error_of([&] { scatter_rows(s.stream, scatter); }) ==
        "scatter_rows: x and y must not share memory");
}

TEST_CASE("there may be no rows to gather or to scatter, and none to gather from") {
  Small s;
  const Tensor no_rows{nullptr, DType::f32, {0, 2}, Device::cpu()};
  const Tensor no_index{nullptr, DType::i32, {0}, Device::cpu()};
  gather_rows(s.stream, {.y = no_rows, .x = tensor_of(s.x, {3, 2}), .index = no_index});
  scatter_rows(s.stream, {.y = tensor_of(s.y, {4, 2}), .x = no_rows, .index = no_index});
  CHECK(s.y[0] == -1);
  std::fill_n(s.index, 3, -1);
  gather_rows(s.stream, {.y = tensor_of(s.x, {3, 2}), .x = no_rows, .index = tensor_of(s.index, {3})});
  CHECK(std::count(s.x, s.x + 6, 0.0f) == 6);
}
