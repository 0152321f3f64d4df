#pragma once
// trace.json, the timeline of a run in Chrome's format: a process for every rank, a row for each of its
// streams, and a row with the steps. All times are on rank 0's clock, from the moment its trace began.

#include <string>

#include "comm/clock.h"
#include "runtime/trace.h"

namespace flatshard {

// Rank 0 writes the file, whole or not at all; the spans of the others come to it over MPI, some thousand at
// a time, since a run's folder may be on its host alone. To be called by all ranks; `offset` is what
// clock_offset() said of this one.
void write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset);

}  // namespace flatshard
