// Races with stream operations other than kernels: copies, memsets, frees.

#include <algorithm>

#include "ptx_vm/program.h"
#include "ptx_vm/race.h"
#include "ptx_vm/report.h"
#include "ptx_vm/timeline.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {

void RaceShadow::note(Chunk& chunk, uint64_t cell, Past& past, uint64_t address, bool writes) {
  const Mark now = past.now().first_mark | Mark{Stamp::kManyLanes} << kLaneShift;
  const auto check_order = [&](Mark other, const char* what_other_did) {
    if (other != now && !past.holds(other))
      report_operation(FindingKind::stream_race, past.now().what,
                       str(writes ? "writes " : "reads ", describe_address(address), ", which ",
                           describe_past(other), ' ', what_other_did, ", and nothing orders the two"));
  };
  check_order(chunk.write[cell], "wrote");
  if (writes) {
    check_order(chunk.read[cell], "read");
    if (!chunk.other_read.empty()) check_order(chunk.other_read[cell], "read");
    chunk.write[cell] = now;
    return;
  }
  // As in a kernel, a read that happened before this one need not be remembered.
  if (past.holds(chunk.read[cell])) {
    chunk.read[cell] = now;
  } else {
    chunk.other_read.resize(chunk.read.size());
    chunk.other_read[cell] = now;
  }
}

void RaceShadow::access(Past& past, uint64_t address, uint64_t offset, uint64_t bytes, bool writes) {
  const uint64_t end = offset + bytes;
  for (uint64_t at = offset; at < end;) {
    Chunk& chunk = chunk_at(at);
    const uint64_t chunk_end = std::min(end, (at / kChunkBytes + 1) * kChunkBytes), edges = at | chunk_end;
    if (chunk.newest < past.settled() && edges % kChunkBytes == 0) chunk.begin_stripes(kLanes, 16, 0);
    if (!chunk.is_at_cell(at) || !chunk.is_at_cell(chunk_end))
      chunk.refine(edges % 16 == 0 ? 4 : edges % 4 == 0 ? 2 : 0);
    chunk.newest = std::max(chunk.newest, past.now().first_mark);
    const uint64_t last = chunk.cell_of(chunk_end - 1);
    for (uint64_t cell = chunk.cell_of(at); cell <= last; ++cell)
      note(chunk, cell, past, address + (chunk.begin_of(cell, at) - offset), writes);
    at = chunk_end;
  }
}

void RaceShadow::end(Past& past, uint64_t address) {
  for (size_t c = 0; c < chunks_.size(); ++c)
    if (chunks_[c])
      for (uint64_t cell = 0; cell < chunks_[c]->write.size(); ++cell)
        note(*chunks_[c], cell, past, address + chunks_[c]->begin_of(cell, c * kChunkBytes), true);
}

}  // namespace flatshard::ptx_vm
