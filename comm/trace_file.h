#pragma once
// trace.json, the timeline of a run in Chrome's trace format: one process per rank, with a row per stream and
// a row of steps. Times are on rank 0's clock, relative to the start of its trace.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "runtime/trace.h"

namespace flatshard {

inline constexpr int64_t kMostTraceBytes = 10'000'000;

// Writes the traces of all ranks. Collective. Rank 0 writes the file atomically; the other ranks send it
// their spans over MPI in parts, since the run folder may exist only on rank 0's host. `offset` is this
// rank's clock_offset(). Returns whether everything was written: spans of the last ranks that do not fit into
// kMostTraceBytes are left out.
bool write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset);
// Writes traces that are all in this process; each begins at time 0.
bool write_trace(const std::string& path, const std::vector<const Trace*>& traces);

}  // namespace flatshard
