#include "train/run/matrix_peak.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr FlopsPerToken kFlops{.full = 8e6, .causal = 6e6};
constexpr double kTokens = 1e6;  // so many tokens per second are a rate of 6e12

}  // namespace

TEST_CASE("steps slower than the measured peak are fractions of it, without a word") {
  MatrixPeak peak{.measured = 12e12};
  StepMetrics m;
  CHECK(peak.set_mfu(m, kTokens, kFlops).empty());
  CHECK(m.mfu == doctest::Approx(8.0 / 12));
  CHECK(m.mfu_causal == 0.5);
  CHECK_FALSE(m.mfu_is_bound);
}

TEST_CASE("a step faster than the measured peak makes utilization an upper bound, and says so once") {
  MatrixPeak peak{.measured = 2e12};
  StepMetrics m;
  const std::string lines = peak.set_mfu(m, kTokens, kFlops);
  CHECK(lines.starts_with(
      "mfu       is an upper bound from here on, relative to the fastest step: this one computes 6000 "
      "GFLOP/s, but products only 2000 GFLOP/s at startup, "));
  CHECK(m.mfu_is_bound);
  CHECK(m.mfu_causal == 1);
  CHECK(peak.set_mfu(m, kTokens / 2, kFlops).empty());
  CHECK(m.mfu_is_bound);
  CHECK(m.mfu_causal == 0.5);
  CHECK(peak.set_mfu(m, 2 * kTokens, kFlops).empty());
  CHECK(m.mfu_causal == 1);
  CHECK(peak.set_mfu(m, kTokens, kFlops).empty());
  CHECK(m.mfu_causal == 0.5);
}

TEST_CASE("a utilization above 100 % from attention that a causal mask skips is explained once") {
  MatrixPeak peak{.measured = 7e12};
  StepMetrics m;
  CHECK(peak.set_mfu(m, kTokens, kFlops) ==
        "mfu       above 100 % counts attention that the causal mask skips; \"causal\" does not");
  CHECK(m.mfu == doctest::Approx(8.0 / 7));
  CHECK_FALSE(m.mfu_is_bound);
  CHECK(peak.set_mfu(m, kTokens, kFlops).empty());
}
