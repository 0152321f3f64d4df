#include "kernels/sum_squares.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

// Uneven magnitudes, so that another order of addition gives other bits.
std::vector<float> gradients(int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>((i * 7919) % 10007) / 997.0f - 5.0f;
  return x;
}

// The partials of x split into ranges that end at the given indices.
std::vector<float> partials_of(std::vector<float>& x, const std::vector<int64_t>& ends) {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  std::vector<float> all;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    std::vector<float> partials(static_cast<size_t>(squares_intervals(begin, end - begin)));
    sum_squares(stream, {.partials = tensor_of(partials.data(), {static_cast<int64_t>(partials.size())}),
                         .x = tensor_of(x.data() + begin, {end - begin}),
                         .first = begin});
    all.insert(all.end(), partials.begin(), partials.end());
    begin = end;
  }
  return all;
}

struct Clip {
  float norm = -1, coefficient = -1;
  int32_t nonfinite = -1;
  std::vector<double> sums{};  // sums of partials
};

// Of the partials of `ranks` ranks, of units with these numbers of intervals on each rank.
Clip clip_units(std::vector<float> partials, int64_t ranks, const std::vector<int64_t>& units, float max_norm,
                float scale = 1.0f) {
  StreamSet streams(Device::cpu());
  Clip result;
  std::vector<int32_t> words(static_cast<size_t>(2 * sums_of_partials(ranks, units)));
  const int64_t per_rank = static_cast<int64_t>(partials.size()) / ranks;
  Stream& stream = streams.add("compute");
  const Tensor sums = tensor_of(words.data(), {static_cast<int64_t>(words.size()) / 2, 2});
  sum_partials(stream,
               {.sums = sums, .partials = tensor_of(partials.data(), {ranks, per_rank}), .units = units});
  clip_coefficient(stream, {.norm = tensor_of(&result.norm, {1}),
                            .coefficient = tensor_of(&result.coefficient, {1}),
                            .nonfinite = tensor_of(&result.nonfinite, {1}),
                            .sums = sums,
                            .max_norm = max_norm,
                            .scale = scale});
  result.sums.resize(words.size() / 2);
  std::memcpy(result.sums.data(), words.data(), words.size() * sizeof(int32_t));
  return result;
}

Clip clip(const std::vector<float>& partials, float max_norm, float scale = 1.0f) {
  return clip_units(partials, 1, {static_cast<int64_t>(partials.size())}, max_norm, scale);
}

}  // namespace

TEST_CASE("the sum of squares and the clip coefficient match PyTorch") {
  for (const Case& c : bench::golden_cases("sum_squares")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("sum_squares_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("the sums of squares of the shards in the specification are reproduced") {
  std::vector<float> g(512);
  for (int i = 0; i < 512; ++i) g[i] = static_cast<float>((i * 53 + 7) % 127 - 63) / 1024.0f;
  struct Cut {
    std::vector<int64_t> ends;
    std::vector<double> sums;
  };
  for (const Cut& cut :
       {Cut{{512}, {0.6570558548}}, Cut{{256, 512}, {0.3285608292, 0.3284950256}},
        Cut{{171, 342, 512}, {0.2215871811, 0.2179050446, 0.2175636292}},
        Cut{{128, 256, 384, 512}, {0.1657714844, 0.1627893448, 0.1651649475, 0.1633300781}}}) {
    const std::vector<float> partials = partials_of(g, cut.ends);
    REQUIRE(partials.size() == cut.sums.size());
    for (size_t i = 0; i < partials.size(); ++i)
      CHECK(std::abs(static_cast<double>(partials[i]) - cut.sums[i]) < 1e-7);  // fp32 sums of order 0.2
  }
}

TEST_CASE("the norm has the same bits for any split at interval boundaries") {
  const int64_t n = 4 * kSquaresInterval - 1000;
  std::vector<float> x = gradients(n);
  const std::vector<float> whole = partials_of(x, {n});
  CHECK(whole.size() == 4);
  CHECK(partials_of(x, {2 * kSquaresInterval, n}) == whole);
  CHECK(partials_of(x, {kSquaresInterval, 2 * kSquaresInterval, 3 * kSquaresInterval, n}) == whole);
}

TEST_CASE("an interval split in two gives two partials with the same sum up to rounding") {
  const int64_t n = 2 * kSquaresInterval;
  std::vector<float> x = gradients(n);
  const std::vector<float> cut = partials_of(x, {kSquaresInterval + 333, n});
  CHECK(cut.size() == 3);
  CHECK(clip(cut, 1).norm == doctest::Approx(clip(partials_of(x, {n}), 1).norm).epsilon(1e-6));
}

TEST_CASE("partials are summed in fp64") {
  // In fp32, adding the small partials one by one to the large one would lose all of them.
  std::vector<float> partials(4097, 1.0f);
  partials[0] = 0x1p25f;
  CHECK(clip(partials, 1).norm == static_cast<float>(std::sqrt(0x1p25 + 4096)));
}

TEST_CASE("the sums of partials have the same bits on 1, 2, 4 and 8 ranks, whose shards are padded") {
  // Of uneven magnitudes, so that another order of addition gives other bits.
  const std::vector<int64_t> intervals{5, kPartialsPerSum - 1, 1, 2 * kPartialsPerSum + 2};
  const auto partial = [](size_t unit, int64_t interval) {
    const auto i = static_cast<int>(7919 * interval % 10007 + 31 * static_cast<int64_t>(unit));
    return std::ldexp(1.0f + static_cast<float>(i) / 10037.0f, i % 40);
  };
  const auto on_ranks = [&](int64_t ranks) {
    std::vector<int64_t> units;
    for (const int64_t n : intervals) units.push_back((n + ranks - 1) / ranks);
    std::vector<float> partials;
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (size_t unit = 0; unit < units.size(); ++unit)
        for (int64_t c = rank * units[unit]; c < (rank + 1) * units[unit]; ++c)
          partials.push_back(c < intervals[unit] ? partial(unit, c) : 0.0f);
    return clip_units(partials, ranks, units, 1);
  };
  const Clip alone = on_ranks(1);
  CHECK(alone.sums.size() == 6);
  for (const int64_t ranks : {2, 4, 8}) {
    CAPTURE(ranks);
    const Clip together = on_ranks(ranks);
    CHECK(together.sums == alone.sums);
    CHECK(together.norm == alone.norm);
  }
}

TEST_CASE("gradients within the norm are not scaled") {
  CHECK(clip({9.0f, 16.0f}, 5.1f).coefficient == 1.0f);
  CHECK(clip({9.0f, 16.0f}, std::numeric_limits<float>::infinity()).coefficient == 1.0f);
  CHECK(clip({0.0f}, 1.0f).coefficient == 1.0f);
  CHECK(clip({9.0f, 16.0f}, 2.5f).coefficient == doctest::Approx(0.5f));
}

TEST_CASE("the norm and the clip coefficient undo the loss scale") {
  const Clip scaled = clip({9.0f * 0x1p20f, 16.0f * 0x1p20f}, 2.5f, 0x1p-10f);
  CHECK(scaled.norm == 5.0f);
  CHECK(scaled.coefficient == 0x1p-10f * clip({9.0f, 16.0f}, 2.5f).coefficient);
}

TEST_CASE("an infinite or NaN gradient sets the nonfinite flag") {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = gradients(kSquaresInterval + 5);
    CHECK(clip(partials_of(x, {kSquaresInterval + 5}), 1).nonfinite == 0);
    x[kSquaresInterval + 1] = bad;
    const Clip result = clip(partials_of(x, {kSquaresInterval + 5}), 1);
    CHECK(result.nonfinite == 1);
    CHECK(!std::isfinite(result.norm));
    CHECK(!(result.coefficient > 0.0f));
  }
}

TEST_CASE("sum_squares reports the number of partials of a range") {
  std::vector<float> x = gradients(10);
  StreamSet streams(Device::cpu());
  float partials[1];
  const std::string error = test::error_of([&] {
    sum_squares(streams.add("compute"), {.partials = tensor_of(partials, {1}),
                                         .x = tensor_of(x.data(), {10}),
                                         .first = kSquaresInterval - 5});
  });
  CHECK(error == "sum_squares: partials is f32 (1), must be f32 with 2 elements for the range [4091, 4101)");
}
