#include "kernels/expert_bias.h"

#include <vector>

#include "kernels/grouped_product.h"
#include "runtime/stream.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("each row of a token gets its expert's bias, and gives its gradient") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  // Two experts with a segment each, and three tokens: the first goes to both, the second to none.
  constexpr int64_t kRows = 3 * kSegmentRows, kColumns = 2;
  std::vector<int32_t> offsets{0, 64, 128}, rows(kRows, -1), places{64, 1, -1, -1, 0, -1},
      experts{1, 0, -1, -1, 0, -1};
  rows[0] = 2;
  rows[1] = 0;
  rows[64] = 0;
  std::vector<float> x(kRows * kColumns, 1), bias{10, 20, 30, 40};
  const Tensor at = tensor_of(offsets.data(), {3}), tokens = tensor_of(rows.data(), {kRows});
  add_expert_bias(stream, {.x = tensor_of(x.data(), {kRows, kColumns}),
                           .bias = tensor_of(bias.data(), {2, kColumns}),
                           .offsets = at,
                           .rows = tokens});
  stream.sync();
  for (int64_t row = 0; row < kRows; ++row) {
    const float expected = row < 2 ? 11.0f : row == 64 ? 31.0f : 1.0f;
    CHECK(x[static_cast<size_t>(2 * row)] == expected);
  }
  std::vector<float> dx(kRows * kColumns, 1000), weights{0.5f, 2, 7, 7, 3, 7}, dbias{1, 1, 1, 1},
      dweights(6, 1);
  dx[0] = 1;
  dx[1] = 2;
  dx[2] = 3;
  dx[3] = 4;
  dx[128] = 5;
  dx[129] = 6;
  ExpertBiasBackward a{.dbias = tensor_of(dbias.data(), {2, kColumns}),
                       .dweights = tensor_of(dweights.data(), {3, 2}),
                       .dx = tensor_of(dx.data(), {kRows, kColumns}),
                       .bias = tensor_of(bias.data(), {2, kColumns}),
                       .weights = tensor_of(weights.data(), {3, 2}),
                       .places = tensor_of(places.data(), {3, 2}),
                       .experts = tensor_of(experts.data(), {3, 2}),
                       .offsets = at,
                       .rows = tokens,
                       .accumulate = true};
  expert_bias_backward(stream, a);
  stream.sync();
  CHECK(dbias == std::vector<float>{1 + 3 * 1 + 2 * 3, 1 + 3 * 2 + 2 * 4, 1 + 0.5f * 5, 1 + 0.5f * 6});
  CHECK(dweights ==
        std::vector<float>{1 + 5 * 30 + 6 * 40, 1 + 3 * 10 + 4 * 20, 1, 1, 1 + 1 * 10 + 2 * 20, 1});
  a.weights = a.dweights = {};
  a.accumulate = false;
  expert_bias_backward(stream, a);
  stream.sync();
  CHECK(dbias == std::vector<float>{4, 6, 5, 6});
  a.dbias.shape = {3};
  CHECK(test::error_of([&] { expert_bias_backward(stream, a); }).starts_with("expert_bias_backward: dbias"));
}
