#pragma once
// trace.json, the timeline of a run in Chrome's trace format: one process per rank, with a row per stream and
// a row of steps. Times are on rank 0's clock, relative to the start of its trace.

#include <string>

#include "comm/clock.h"
#include "runtime/trace.h"

namespace flatshard {

// Collective. Rank 0 writes the file atomically; the other ranks send it their spans over MPI in chunks,
// since the run folder may exist only on its host. `offset` is this rank's clock_offset().
void write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset);

// Collective. Writes trace.json and its picture, overlap.svg (trace_picture.h), into a folder. A failure is
// logged as a warning.
void write_trace_files(const std::string& folder, const Trace& trace, World& world,
                       const ClockOffset& offset);

}  // namespace flatshard
