#include "kernels/qk_norm.h"

#include <cmath>
#include <vector>

#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "runtime/memory.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kT = 3, kHq = 4, kHkv = 2, kD = 8, kHeads = kHq + kHkv;

std::vector<float> values(int64_t size, double phase) {
  std::vector<float> all(static_cast<size_t>(size));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<float>(std::sin(phase + static_cast<double>(i)));
  return all;
}

}  // namespace

TEST_CASE("qk_norm is rmsnorm of each head, or of all heads of q and of k, and then rope") {
  for (const bool all_heads : {false, true}) {
    CAPTURE(all_heads);
    const int64_t q_width = all_heads ? kHq * kD : kD, k_width = all_heads ? kHkv * kD : kD;
    std::vector<float> q = values(kT * kHq * kD, 1), k = values(kT * kHkv * kD, 2), wq = values(q_width, 3),
                       wk = values(k_width, 4), table(kT * kD), packed, y(kT * kHeads * kD),
                       rstd(kT * kHeads), expected;
    rope_table(tensor_of(table.data(), {kT, kD}), 100);
    std::vector<int32_t> positions{2, 0, 1};
    for (size_t t = 0; t < kT; ++t) {
      packed.insert(packed.end(), &q[t * kHq * kD], &q[t * kHq * kD] + kHq * kD);
      packed.insert(packed.end(), &k[t * kHkv * kD], &k[t * kHkv * kD] + kHkv * kD);
    }
    StreamSet streams(Device::cpu());
    Stream& stream = streams.add("compute");
    const Tensor of_positions = tensor_of(positions.data(), {kT}),
                 of_table = tensor_of(table.data(), {kT, kD});
    qk_norm_forward(stream, {.y = tensor_of(y.data(), {kT, kHeads, kD}),
                             .rstd = tensor_of(rstd.data(), {kT, all_heads ? 2 : kHeads}),
                             .x = tensor_of(packed.data(), {kT, kHeads, kD}),
                             .wq = tensor_of(wq.data(), {q_width}),
                             .wk = tensor_of(wk.data(), {k_width}),
                             .positions = of_positions,
                             .table = of_table,
                             .query_heads = kHq,
                             .eps = 1e-6f});
    const auto one_by_one = [&](std::vector<float>& x, std::vector<float>& w, int64_t heads) {
      const int64_t width = std::ssize(w), rows = std::ssize(x) / width;
      std::vector<float> ignored(static_cast<size_t>(rows));
      rmsnorm_forward(stream, {.y = tensor_of(x.data(), {rows, width}),
                               .rstd = tensor_of(ignored.data(), {rows}),
                               .x = tensor_of(x.data(), {rows, width}),
                               .w = tensor_of(w.data(), {width}),
                               .eps = 1e-6f});
      const Tensor turned = tensor_of(x.data(), {kT, heads, kD});
      rope_forward(stream, {.y = turned, .x = turned, .positions = of_positions, .table = of_table});
    };
    one_by_one(q, wq, kHq);
    one_by_one(k, wk, kHkv);
    for (size_t t = 0; t < kT; ++t) {
      expected.insert(expected.end(), &q[t * kHq * kD], &q[t * kHq * kD] + kHq * kD);
      expected.insert(expected.end(), &k[t * kHkv * kD], &k[t * kHkv * kD] + kHkv * kD);
    }
    CHECK(y == expected);
  }
}

TEST_CASE("qk_norm reports weights that do not fit, odd heads and positions outside the table") {
  std::vector<float> x(kT * kHeads * kD), w(kHq * kD), rstd(kT * kHeads), table(2 * kD);
  std::vector<int32_t> positions{0, 1, 2};
  const auto error_of = [&](int64_t wk, int64_t D, bool rotates) {
    StreamSet streams(Device::cpu());
    return test::error_of([&] {
      qk_norm_forward(streams.add("compute"), {.y = tensor_of(x.data(), {kT, kHeads, D}),
                                               .rstd = tensor_of(rstd.data(), {kT, kHeads}),
                                               .x = tensor_of(x.data(), {kT, kHeads, D}),
                                               .wq = tensor_of(w.data(), {D}),
                                               .wk = tensor_of(w.data(), {wk}),
                                               .positions = tensor_of(positions.data(), {kT}),
                                               .table = rotates ? tensor_of(table.data(), {2, D}) : Tensor{},
                                               .query_heads = kHq,
                                               .eps = 1e-6f});
    });
  };
  CHECK(error_of(kD, kD, false).empty());
  CHECK(error_of(kD + 2, kD, false) ==
        "qk_norm_forward: w has 8 and 10 elements, must have 8 each, or 32 and 16");
  CHECK(error_of(7, 7, false) == "qk_norm_forward: heads have 7 elements, must be even");
  CHECK(error_of(kD, kD, true) == "qk_norm_forward: position 2 of token 2 is outside the table of 2");
}
