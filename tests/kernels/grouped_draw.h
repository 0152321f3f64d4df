#pragma once
// Random settings of products of segments of rows, and the check of their values.

#include <algorithm>

#include "bench/kernels/grouped_case.h"
#include "kernels/grouped_product.h"
#include "tests/kernels/outputs.h"
#include "tests/kernels/random_draw.h"
#include "tests/test.h"

namespace flatshard::test {

// Segments of none, one, or several pieces of rows; extents are multiples of 8, as the kernel takes them.
inline bench::GroupedSetting draw(Random& random, DType dtype) {
  const auto one_in = [&](int64_t n) { return below(random, n) == 0; };
  const auto extent = [&] { return 8 * (1 + below(random, one_in(2) ? 12 : 40)); };
  bench::GroupedSetting s{
      .dtype = dtype, .kind = static_cast<bench::GroupedKind>(below(random, 3)), .rows = {}, .N = extent()};
  for (int64_t segments = 1 + below(random, 6); segments > 0; --segments)
    s.rows.push_back(one_in(3) ? 0 : kSegmentRows * (1 + below(random, 4)));
  s.behind = kSegmentRows * below(random, 3) +
             (std::count(s.rows.begin(), s.rows.end(), 0) == std::ssize(s.rows) ? kSegmentRows : 0);
  if (s.kind == bench::GroupedKind::weight_gradient) {
    s.M = extent();
    s.out = one_in(2) ? dtype : DType::f32;
    s.accumulate = one_in(2);
  } else {
    s.K = extent();
    s.accumulate = one_in(4);
    if (one_in(2) && !s.accumulate)
      s.end = s.kind == bench::GroupedKind::forward ? bench::GemmEnd::gated : bench::GemmEnd::gradient;
    if (s.end == bench::GemmEnd::gated) s.N = (s.N + 15) / 16 * 16;
    if (one_in(2)) s.function = Gate::gelu;
  }
  if (s.kind != bench::GroupedKind::input_gradient && one_in(2)) s.tokens = 1 + below(random, 300);
  if (one_in(3)) s.between = 8 * (1 + below(random, 20));
  if (one_in(3) && s.end == bench::GemmEnd::none) {
    s.spare = 8 * (1 + below(random, 10));
    s.alpha = 0.5;
  }
  return s;
}

// The outputs of a case against its formula.
inline void check_values(const bench::Case& c, Device device) {
  CAPTURE(label(c));
  bench::Setup setup(c, {.device = device});
  const bench::Values expected = expected_outputs(c, setup.all_values());
  setup.run();
  for (const bench::Arg& arg : c.args) {
    if (!is_written(arg)) continue;
    CAPTURE(arg.name);
    CHECK(bench::max_error(setup.values(arg.name), expected.at(arg.name)) <= bench::tolerance(c));
  }
}

}  // namespace flatshard::test
