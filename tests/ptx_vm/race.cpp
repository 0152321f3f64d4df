#include "tests/ptx_vm/race.h"

#include "runtime/check.h"
#include "tests/ptx_vm/grid.h"
#include "tests/ptx_vm/memory.h"
#include "tests/ptx_vm/report.h"

namespace flatshard::ptx_vm {
namespace {

// Did this access happen before what the lane does now?
bool is_ordered(const Stamp& past, const Warp& warp, uint32_t lane) {
  if (past.serial < warp.block->launch->first_serial) return true;  // none, or of an earlier launch
  if (past.serial == warp.serial) return past.lane == lane || past.time < warp.time();
  const uint32_t index = past.serial - warp.block->first_serial();  // huge for earlier blocks
  return index < warp.known.size() && past.time <= warp.known[index];
}

[[noreturn]] void report_race(const Stamp& past, const Warp& warp, int lane, uint64_t address, bool writes,
                              const char* past_access) {
  const bool is_shared = (address & kWindowMask) == kSharedWindow;
  const FindingKind kind = past.serial == warp.serial ? FindingKind::warp_race
                           : is_shared                ? FindingKind::shared_race
                                                      : FindingKind::global_race;
  report(kind, warp, lane,
         str(writes ? "writes " : "reads ", describe_address(warp, address), ", which ",
             describe_actor(warp, past.serial, static_cast<int>(past.lane), past.op), ' ', past_access,
             ", and nothing orders the two"));
}

}  // namespace

void RaceShadow::Chunk::refine() {
  std::vector<Cell> bytes(kChunkBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = cells[i / 4];
  cells = std::move(bytes);
  cell_bytes = 1;
}

RaceShadow::Chunk& RaceShadow::chunk_at(uint64_t offset) {
  const uint64_t index = offset / kChunkBytes;
  if (index >= chunks_.size()) chunks_.resize(index + 1);
  if (!chunks_[index]) chunks_[index] = std::make_unique<Chunk>();
  return *chunks_[index];
}

bool RaceShadow::touch(Cell& cell, Warp& warp, const Op& op, int lane_index, uint64_t address, bool writes) {
  const auto lane = static_cast<uint32_t>(lane_index);
  const Stamp now{warp.serial, warp.time(), warp.step, op.index, static_cast<uint8_t>(lane), op.is_strong};
  const bool same_instruction = cell.write.serial == warp.serial && cell.write.step == warp.step;
  if (!same_instruction && !is_ordered(cell.write, warp, lane) && !(op.is_strong && cell.write.is_strong))
    report_race(cell.write, warp, lane_index, address, writes, "wrote");
  if (!writes) {
    // A read that happened before this one need not be remembered: what races with it races with this one.
    for (Stamp& read : cell.read) {
      if (read.serial == warp.serial && read.time == now.time) {
        if (read.lane != lane) read.lane = Stamp::kManyLanes;
        read.step = now.step, read.op = now.op;
        return false;
      }
      if (is_ordered(read, warp, lane)) {
        read = now;
        return false;
      }
    }
    return false;
  }
  for (Stamp& read : cell.read) {
    const bool own_update =
        read.serial == warp.serial && read.step == warp.step;  // an atomic reads and writes
    if (!own_update && !is_ordered(read, warp, lane) && !(op.is_strong && read.is_strong))
      report_race(read, warp, lane_index, address, true, "read");
    read = {};
  }
  const bool collides = same_instruction && cell.write.lane != lane;
  cell.write = now;
  return collides;
}

bool RaceShadow::access(Warp& warp, const Op& op, int lane, uint64_t address, uint64_t offset, uint32_t bytes,
                        bool writes) {
  bool collides = false;
  Chunk& chunk = chunk_at(offset);
  if (chunk.cell_bytes == 4 && ((offset | bytes) & 3) != 0) chunk.refine();
  const uint64_t begin = offset % kChunkBytes;  // an access is aligned, so it stays within the chunk
  for (uint64_t at = begin; at < begin + bytes; at += chunk.cell_bytes)
    collides |= touch(chunk.cells[at / chunk.cell_bytes], warp, op, lane, address + (at - begin), writes);
  return collides;
}

}  // namespace flatshard::ptx_vm
