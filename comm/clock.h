#pragma once
// Clock synchronization between ranks. steady_clock has a different epoch on every host: ranks on one host
// share a clock, ranks on different hosts do not.

#include <functional>

#include "comm/world.h"

namespace flatshard {

// Rank 0's clock reads this rank's time plus `seconds`, within `error`.
struct ClockOffset {
  double seconds = 0, error = 0;
};

// The offset of this rank: zero on rank 0's host, measured on other hosts. Collective: all ranks must call
// it.
ClockOffset clock_offset(World& world);

// Measures the offset. No rank leaves an exchange before all ranks have entered it, so some instant lies
// between entry and exit on every rank's clock. Each exchange therefore gives a lower and an upper bound on
// the offset; the result uses the tightest bounds of many exchanges. `now` reads this rank's clock.
ClockOffset measure_clock_offset(World& world, const std::function<double()>& now);

// Seconds on this rank's steady_clock.
double steady_seconds();

}  // namespace flatshard
