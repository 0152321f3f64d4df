#include "ptx_vm/race.h"

#include <algorithm>
#include <bit>

#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint32_t kLeastStripe = 8;  // lanes
constexpr int kOneLane = 63;          // log2 of its bytes, when it has them all

uint32_t next_epoch = 1;

[[noreturn]] void report_race(const Stamp& past, const Warp& warp, uint32_t now_lane, uint64_t address,
                              bool writes, const char* past_access) {
  const bool is_shared = (address & kWindowMask) == kSharedWindow;
  const bool was_async = past.serial && warp.block->launch->async.find(past.serial);
  const FindingKind kind = past.serial == 0                         ? FindingKind::stream_race
                           : warp.adds_in_order                     ? FindingKind::float_atomic
                           : was_async && !writes && !warp.is_async ? FindingKind::early_read
                           : was_async || warp.is_async             ? FindingKind::async_race
                           : past.serial == warp.serial             ? FindingKind::warp_race
                           : is_shared                              ? FindingKind::shared_race
                                                                    : FindingKind::global_race;
  const int lane = now_lane == Stamp::kManyLanes ? std::countr_zero(warp.active) : static_cast<int>(now_lane);
  report(kind, warp, lane,
         str(warp.is_async ? "the asynchronous work issued here " : "",
             warp.adds_in_order ? "adds floats to "
             : writes           ? "writes "
                                : "reads ",
             describe_address(warp, address), ", which ",
             past.serial ? describe_actor(warp, past.serial, static_cast<int>(past.lane()), past.op())
                         : describe_past(past.mark),
             ' ', past_access, ", and nothing orders the two",
             warp.adds_in_order ? "; PTX_VM_FLOAT_ATOMICS permits it" : ""));
}

uint32_t epoch_of(Warp& warp) {
  if (!warp.epoch) warp.epoch = warp.block->launch->epochs.add({warp.serial, warp.time()});
  return warp.epoch;
}

// Whether the thread fenced its write before the time in `known` of its warp.
bool is_fenced(const Stamp& write, const Warp& writer, uint32_t known) {
  const std::vector<ProxyFence>& fences = writer.proxy_fences;
  const auto later = std::partition_point(fences.begin(), fences.end(),
                                          [&](const ProxyFence& f) { return f.before <= write.mark; });
  return std::any_of(later, fences.end(),
                     [&](const ProxyFence& f) { return f.time <= known && f.lanes >> write.lane() & 1; });
}

}  // namespace

Epochs::Epochs() : first_(next_epoch) {}

Mark Epochs::next_mark() { return Mark{next_epoch} << kEpochShift; }

uint32_t Epochs::add(Epoch epoch) {
  check(next_epoch != ~uint32_t{0},
        "this process has used all 2^32 epochs of the race detector; run fewer tests in one process");
  all_.push_back(epoch);
  return next_epoch++;
}

RaceShadow::Chunk::Chunk() { begin_stripes(kLanes, 16, 0); }

void RaceShadow::Chunk::clear(int bytes_of_cell, int bytes_of_lane, uint64_t before) {
  log_cell = bytes_of_cell;
  log_lane = bytes_of_lane;
  lead = before;
  const uint64_t cells = (kChunkBytes + lead + (uint64_t{1} << log_cell) - 1) >> log_cell;
  write.assign(cells, 0);
  read.assign(cells, 0);
  other_read.clear();
}

void RaceShadow::Chunk::begin_stripes(uint64_t lanes, uint64_t bytes_of_lane, uint64_t offset) {
  const uint64_t stripe = bytes_of_lane * lanes;
  clear(std::countr_zero(stripe), std::countr_zero(bytes_of_lane), (0 - offset) % stripe);
}

uint64_t RaceShadow::Chunk::begin_of(uint64_t cell, uint64_t from) const {
  return std::max(from + lead, from / kChunkBytes * kChunkBytes + (cell << log_cell)) - lead;
}

bool RaceShadow::Chunk::is_at_cell(uint64_t offset) const {
  return offset % kChunkBytes == 0 || (offset + lead) % (uint64_t{1} << log_cell) == 0;
}

bool RaceShadow::Chunk::takes(const Span& span) const {
  const uint64_t stripe = uint64_t{1} << log_cell;
  return is_striped() && std::countr_zero(span.bytes) == log_lane && (span.offset + lead) % stripe == 0 &&
         span.lanes * span.bytes % stripe == 0;
}

Mark RaceShadow::Chunk::mark_at(const std::vector<Mark>& marks, uint64_t offset) const {
  const Mark mark = marks[cell_of(offset)];
  if (!is_striped() || !mark || Stamp{mark, 0, 0}.lane() == Stamp::kManyLanes) return mark;
  const uint64_t in_stripe = (offset + lead) % (uint64_t{1} << log_cell);
  return mark + (in_stripe >> log_lane << kLaneShift);
}

void RaceShadow::Chunk::refine(int to) {
  if (!is_striped() && log_cell <= to) return;
  if (is_striped() && log_lane < to) to = log_lane >= 2 ? log_lane : 0;
  for (std::vector<Mark>* coarse : {&write, &read, &other_read}) {
    if (coarse->empty()) continue;
    std::vector<Mark> finer(kChunkBytes >> to);
    for (size_t i = 0; i < finer.size(); ++i) finer[i] = mark_at(*coarse, i << to);
    *coarse = std::move(finer);
  }
  log_cell = to;
  log_lane = kNoStripes;
  lead = 0;
}

void RaceShadow::Chunk::make_cells(int log_bytes, Mark forgotten) {
  if (newest >= forgotten)
    refine(log_bytes);
  else if (is_striped() || log_cell > log_bytes)
    clear(log_bytes, kNoStripes, 0);
}

void RaceShadow::Cells::need_other_read() {
  if (other_read) return;
  chunk->other_read.resize(chunk->read.size());
  other_read = &chunk->other_read[first_cell];
}

RaceShadow::Chunk& RaceShadow::chunk_at(uint64_t offset) {
  const uint64_t index = offset / kChunkBytes;
  if (index >= chunks_.size()) chunks_.resize(index + 1);
  if (!chunks_[index]) chunks_[index] = std::make_unique<Chunk>();
  return *chunks_[index];
}

Stamp RaceShadow::stamp_of(Mark mark, const Warp& warp) const {
  const Epochs& epochs = warp.block->launch->epochs;
  if (mark < epochs.first_mark()) return {mark, 0, 0};
  const Epoch& epoch = epochs.at(static_cast<uint32_t>(mark >> kEpochShift));
  return {mark, epoch.serial, epoch.time};
}

// Whether this access happened before the lane's current one.
bool RaceShadow::is_ordered(const Stamp& past, const Warp& warp, uint32_t lane) const {
  if (past.serial == 0) return is_shared_ || warp.block->launch->past.holds(past.mark);
  if (past.serial == warp.serial) return past.lane() == lane || past.time < warp.time();
  if (is_shared_ && past.mark < warp.block->started) return true;
  return knows(warp, past.serial, past.time);
}

// Are all of these marks the lane's own, too old to count, or of one epoch that happened before now as a
// whole?
inline bool RaceShadow::is_free(const Mark* marks, const Cells& cells, Mark first, const Warp& warp) const {
  Mark foreign = 0;
  for (uint64_t i = 0; i < cells.count; ++i) foreign |= is_foreign(marks[i], cells.mark_at(i), first);
  if (!foreign) return true;
  uint64_t at = 0;
  while (!is_foreign(marks[at], cells.mark_at(at), first)) ++at;
  if (!is_ordered(stamp_of(marks[at], warp), warp, Stamp::kNoLane)) return false;
  const Mark epoch = marks[at] >> kEpochShift;
  foreign = 0;
  for (uint64_t i = 0; i < cells.count; ++i) {
    const Mark is_other = marks[i] >> kEpochShift == epoch ? 0 : ~Mark{0};
    foreign |= is_foreign(marks[i], cells.mark_at(i), first) & is_other;
  }
  return !foreign;
}

// The common case: no other actor's access to these cells can conflict. Returns false if nothing was
// recorded.
inline bool RaceShadow::write_together(Cells& cells, Mark first, const Warp& warp) const {
  if (!is_free(cells.write, cells, first, warp) || !is_free(cells.read, cells, first, warp)) return false;
  if (cells.other_read && !is_free(cells.other_read, cells, first, warp)) return false;
  for (uint64_t i = 0; i < cells.count; ++i) cells.write[i] = cells.mark_at(i);
  return true;  // the reads may stay: an access that races with them races with the write too
}

// No other lane has written; others may have read. The first and the last reader are kept.
inline bool RaceShadow::read_together(Cells& cells, Mark first, const Warp& warp) const {
  if (!is_free(cells.write, cells, first, warp)) return false;
  // A read that happened before this one need not be kept: an access that races with it races with this one
  // too.
  if (is_free(cells.read, cells, first, warp)) {
    for (uint64_t i = 0; i < cells.count; ++i) cells.read[i] = cells.mark_at(i);
    return true;
  }
  if (is_ordered(stamp_of(cells.read[0], warp), warp, Stamp::kNoLane)) return false;
  cells.need_other_read();
  for (uint64_t i = 0; i < cells.count; ++i)
    (cells.read[i] < first ? cells.read : cells.other_read)[i] = cells.mark_at(i);
  return true;
}

inline void RaceShadow::note_read(Cells& cells, uint64_t cell, const Warp& warp) const {
  const Stamp now{cells.mark_at(cell), warp.serial, warp.time()};
  const Stamp write = stamp_of(cells.write[cell], warp);
  if (!is_ordered(write, warp, now.lane()) && !(now.is_strong() && write.is_strong()))
    report_race(write, warp, now.lane(), cells.address + (cell << cells.log_cell), false, "wrote");
  cells.need_other_read();
  for (Mark* slot : {&cells.read[cell], &cells.other_read[cell]}) {
    const Stamp read = stamp_of(*slot, warp);
    if (read.serial == warp.serial && read.time == now.time) {
      *slot = read.lane() == now.lane() ? now.mark : now.mark | Mark{Stamp::kManyLanes} << kLaneShift;
      return;
    }
    if (is_ordered(read, warp, now.lane())) {
      *slot = now.mark;
      return;
    }
  }
  cells.other_read[cell] = now.mark;
}

inline bool RaceShadow::note_write(Cells& cells, uint64_t cell, const Warp& warp) const {
  const Stamp now{cells.mark_at(cell), warp.serial, warp.time()};
  const uint64_t address = cells.address + (cell << cells.log_cell);
  const Stamp write = stamp_of(cells.write[cell], warp);
  const bool same_instruction = write.mark >> kStepShift == now.mark >> kStepShift;
  if (!same_instruction && !is_ordered(write, warp, now.lane()) && !(now.is_strong() && write.is_strong()))
    report_race(write, warp, now.lane(), address, true, "wrote");
  for (Mark* slot : {&cells.read[cell], cells.other_read ? &cells.other_read[cell] : nullptr}) {
    if (!slot) continue;
    const Stamp read = stamp_of(*slot, warp);
    if (!is_ordered(read, warp, now.lane()) && !(now.is_strong() && read.is_strong()))
      report_race(read, warp, now.lane(), address, true, "read");
    *slot = 0;
  }
  cells.write[cell] = now.mark;
  return same_instruction && write.lane() != now.lane();
}

RaceShadow::Cells RaceShadow::cells_of(Chunk& chunk, const Span& span, uint64_t begin, uint64_t end, Mark now,
                                       bool is_async) {
  const uint64_t cell = chunk.cell_of(begin);
  return {.chunk = &chunk,
          .first_cell = cell,
          .write = &chunk.write[cell],
          .read = &chunk.read[cell],
          .other_read = chunk.other_read.empty() ? nullptr : &chunk.other_read[cell],
          .count = chunk.cell_of(end - 1) - cell + 1,
          .address = span.address + (begin - span.offset),
          .log_cell = chunk.log_cell,
          .log_bytes = is_async ? kOneLane : std::countr_zero(span.bytes),
          .now = now,
          .from_begin = (begin - span.offset) >> chunk.log_cell << chunk.log_cell};
}

RaceShadow::View RaceShadow::view_of(Warp& warp, const Op& op, uint32_t bytes) const {
  const Mark first = is_shared_ ? warp.block->first_unsettled() : warp.block->launch->past.settled();
  return {.first = first,
          .forgotten = is_shared_ ? warp.block->started : first,
          .now = Mark{epoch_of(warp)} << kEpochShift | Mark{op.index} << kOpShift |
                 Mark{warp.step & 127} << kStepShift | (op.is_strong && !warp.adds_in_order),
          .finest = bytes >= 16  ? 4
                    : bytes >= 4 ? std::countr_zero(bytes)
                                 : 0};
}

bool RaceShadow::access(Warp& warp, const Op& op, const Span& span, bool writes) {
  bool collides = false;
  const View view = view_of(warp, op, span.bytes);
  const Mark now = view.now | Mark{span.first_lane} << kLaneShift;
  const bool is_stripe = !warp.is_async && span.lanes >= kLeastStripe && std::has_single_bit(span.lanes);
  const uint64_t end = span.offset + uint64_t{span.lanes} * span.bytes;
  for (uint64_t at = span.offset; at < end;) {
    Chunk& chunk = chunk_at(at);
    if (!is_stripe || !chunk.takes(span)) {
      if (is_stripe && chunk.newest < view.forgotten)
        chunk.begin_stripes(span.lanes, span.bytes, span.offset);
      else
        chunk.make_cells(view.finest, view.forgotten);
    }
    chunk.newest = std::max(chunk.newest, now);
    const uint64_t begin = at;
    at = std::min(end, (at / kChunkBytes + 1) * kChunkBytes);
    Cells cells = cells_of(chunk, span, begin, at, now, warp.is_async);
    if (writes ? write_together(cells, view.first, warp) : read_together(cells, view.first, warp)) continue;
    if (chunk.is_striped()) {
      chunk.refine(view.finest);
      cells = cells_of(chunk, span, begin, at, now, false);
    }
    for (uint64_t i = 0; i < cells.count; ++i) {
      if (writes)
        collides |= note_write(cells, i, warp);
      else
        note_read(cells, i, warp);
    }
  }
  return collides;
}

void RaceShadow::check_proxy_fences(const Warp& actor, const Span& span) {
  const std::vector<Warp>& warps = actor.block->warps;
  const uint64_t end = span.offset + uint64_t{span.lanes} * span.bytes;
  for (uint64_t at = span.offset; at < end;) {
    const Chunk& chunk = chunk_at(at);
    const Stamp write = stamp_of(chunk.mark_at(chunk.write, at), actor);
    const uint32_t index = write.serial - actor.block->first_serial();  // huge for asynchronous works
    if (index < warps.size() && !is_fenced(write, warps[index], actor.known[index]))
      report(FindingKind::missing_proxy_fence, actor, std::countr_zero(actor.active),
             str("reads ", describe_address(actor, span.address + (at - span.offset)), ", which ",
                 describe_actor(actor, write.serial, static_cast<int>(write.lane()), write.op()),
                 " wrote, without a fence.proxy.async by that thread in between"));
    const int log_piece = chunk.is_striped() ? chunk.log_lane : chunk.log_cell;
    at = ((at >> log_piece) + 1) << log_piece;
  }
}

}  // namespace flatshard::ptx_vm
