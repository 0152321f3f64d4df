#pragma once
// One clock for all ranks. steady_clock counts from a moment of its own on every machine: ranks of one host
// read the same one, ranks of two hosts do not.

#include <functional>

#include "comm/world.h"

namespace flatshard {

// Rank 0's clock shows this rank's time plus `seconds`, give or take `error`.
struct ClockOffset {
  double seconds = 0, error = 0;
};

// Zero on the host of rank 0, measured elsewhere. To be called by all ranks.
ClockOffset clock_offset(World& world);

// Nobody leaves an exchange before everybody has entered it, so there is a moment that lies, on every rank's
// clock, between that rank's entry and its leave. Each exchange so bounds the offset from below and from
// above; the tightest bounds of many count. `now` reads this rank's clock.
ClockOffset measure_clock_offset(World& world, const std::function<double()>& now);

// Seconds on this rank's steady_clock.
double steady_seconds();

}  // namespace flatshard
