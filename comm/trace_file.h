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

// Collective. Rank 0 writes the file atomically; the other ranks send it their spans over MPI in chunks,
// since the run folder may exist only on its host. `offset` is this rank's clock_offset(). Returns whether
// everything was written: what does not fit into kMostTraceBytes, of the last ranks, is left out.
bool write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset);
// The same for traces that are all here; each begins at time 0.
bool write_trace(const std::string& path, const std::vector<const Trace*>& traces);

}  // namespace flatshard
