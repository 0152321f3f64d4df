#pragma once
// One step of a trace as an SVG for light and dark pages. Each rank has a row for compute (forward and
// backward passes, waits, the update), one for gathers, one for reductions and, with offload, one for copies.

#include <string>
#include <vector>

#include "comm/clock.h"
#include "runtime/trace.h"

namespace flatshard {

// Collective. Draws rank 0's step of median length, ignoring the first step if there are others: each rank
// draws its own rows, and rank 0 writes the file. `offset` is this rank's clock_offset(). An Error on rank 0
// names the file if the trace contains no step. Rank 0's `predicted`, unless null, is drawn below with the
// same begin and the same scale.
void write_trace_picture(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset,
                         const StepTimeline* predicted = nullptr);
// Draws the first step of traces that are all in this process and begin together. `what` names their ranks.
void write_trace_picture(const std::string& path, const std::vector<const Trace*>& traces,
                         const std::string& what);

}  // namespace flatshard
