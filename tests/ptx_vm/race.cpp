#include "tests/ptx_vm/race.h"

#include <algorithm>
#include <bit>

#include "runtime/check.h"
#include "tests/ptx_vm/grid.h"
#include "tests/ptx_vm/memory.h"
#include "tests/ptx_vm/report.h"

namespace flatshard::ptx_vm {
namespace {

[[noreturn]] void report_race(const Stamp& past, const Warp& warp, const Stamp& now, uint64_t address,
                              bool writes, const char* past_access) {
  const bool is_shared = (address & kWindowMask) == kSharedWindow;
  const FindingKind kind = past.serial == warp.serial ? FindingKind::warp_race
                           : is_shared                ? FindingKind::shared_race
                                                      : FindingKind::global_race;
  const int lane =
      now.lane() == Stamp::kManyLanes ? std::countr_zero(warp.active) : static_cast<int>(now.lane());
  report(kind, warp, lane,
         str(writes ? "writes " : "reads ", describe_address(warp, address), ", which ",
             describe_actor(warp, past.serial, static_cast<int>(past.lane()), past.op()), ' ', past_access,
             ", and nothing orders the two"));
}

}  // namespace

void RaceShadow::Chunk::refine(uint32_t to) {
  std::vector<Cell> finer(kChunkBytes / to);
  for (size_t i = 0; i < finer.size(); ++i) finer[i] = cells[i * to / cell_bytes];
  cells = std::move(finer);
  cell_bytes = to;
}

RaceShadow::Chunk& RaceShadow::chunk_at(uint64_t offset) {
  const uint64_t index = offset / kChunkBytes;
  if (index >= chunks_.size()) chunks_.resize(index + 1);
  if (!chunks_[index]) chunks_[index] = std::make_unique<Chunk>();
  return *chunks_[index];
}

// Did this access happen before what the lane does now?
inline bool RaceShadow::is_ordered(const Stamp& past, const Warp& warp, uint32_t lane) const {
  if (past.serial < warp.block->launch->first_serial) return true;  // none, or of an earlier launch
  if (past.serial == warp.serial) return past.lane() == lane || past.time < warp.time();
  const uint32_t index = past.serial - warp.block->first_serial();  // huge for earlier blocks
  if (index < warp.known.size()) return past.time <= warp.known[index];
  if (is_shared_ && past.serial < warp.block->first_async) return true;
  const auto known = warp.known_elsewhere.find(past.serial);
  return known != warp.known_elsewhere.end() && past.time <= known->second;
}

inline void RaceShadow::note_read(Cell& cell, Warp& warp, const Stamp& now, uint64_t address) const {
  if (!is_ordered(cell.write, warp, now.lane()) && !(now.is_strong() && cell.write.is_strong()))
    report_race(cell.write, warp, now, address, false, "wrote");
  // A read that happened before this one need not be remembered: what races with it races with this one.
  for (Stamp& read : cell.read) {
    if (read.serial == warp.serial && read.time == now.time) {
      const uint32_t lane = read.lane() == now.lane() ? now.lane() : Stamp::kManyLanes;
      read = now;
      read.what = Stamp::pack(now.op(), lane, now.is_strong());
      return;
    }
    if (is_ordered(read, warp, now.lane())) {
      read = now;
      return;
    }
  }
}

inline bool RaceShadow::note_write(Cell& cell, Warp& warp, const Stamp& now, uint64_t address) const {
  const bool same_instruction = cell.write.serial == warp.serial && cell.write.step == now.step;
  if (!same_instruction && !is_ordered(cell.write, warp, now.lane()) &&
      !(now.is_strong() && cell.write.is_strong()))
    report_race(cell.write, warp, now, address, true, "wrote");
  for (Stamp& read : cell.read) {
    if (!is_ordered(read, warp, now.lane()) && !(now.is_strong() && read.is_strong()))
      report_race(read, warp, now, address, true, "read");
    read = {};
  }
  const bool collides = same_instruction && cell.write.lane() != now.lane();
  cell.write = now;
  return collides;
}

bool RaceShadow::access(Warp& warp, const Op& op, const Span& span, bool writes) {
  bool collides = false;
  Stamp now{warp.serial, warp.time(), warp.step, 0};
  const uint32_t first = warp.block->launch->first_serial;
  const int log_bytes = std::countr_zero(span.bytes);
  const uint32_t widest = std::min(span.bytes, 16u);
  const uint64_t end = span.offset + uint64_t{span.lanes} * span.bytes;
  for (uint64_t at = span.offset; at < end;) {
    Chunk& chunk = chunk_at(at);
    if (chunk.cell_bytes > widest) chunk.refine(widest >= 4 ? 4 : 1);
    const int log_cell = std::countr_zero(chunk.cell_bytes);
    const uint64_t chunk_end = std::min(end, (at / kChunkBytes + 1) * kChunkBytes);
    Cell* cell = &chunk.cells[at % kChunkBytes >> log_cell];
    for (; at < chunk_end; at += uint64_t{1} << log_cell, ++cell) {
      const auto lane = span.first_lane + static_cast<uint32_t>((at - span.offset) >> log_bytes);
      now.what = Stamp::pack(op.index, lane, op.is_strong);
      // The common case: nobody has been here in this launch, so nothing can conflict.
      const bool is_fresh = cell->write.serial < first && cell->read[0].serial < first;
      if (is_fresh && (!writes || cell->read[1].serial < first)) [[likely]] {
        (writes ? cell->write : cell->read[0]) = now;
        continue;
      }
      const uint64_t address = span.address + (at - span.offset);
      if (writes)
        collides |= note_write(*cell, warp, now, address);
      else
        note_read(*cell, warp, now, address);
    }
  }
  return collides;
}

}  // namespace flatshard::ptx_vm
