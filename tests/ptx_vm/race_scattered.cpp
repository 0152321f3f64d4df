// What lanes do that access memory here and there, such as the rows of a tile whose places are swizzled.

#include <algorithm>

#include "tests/ptx_vm/grid.h"
#include "tests/ptx_vm/race.h"

namespace flatshard::ptx_vm {
namespace {

Mark epoch(Mark mark) { return mark >> kEpochShift; }

// The reader to remember for a cell: this one, or of lanes of this warp that all read it, all.
Mark joined(Mark past, Mark now) {
  constexpr Mark kLane = Mark{63} << kLaneShift;
  return now | (epoch(past) == epoch(now) && ((past ^ now) & kLane) ? kLane : 0);
}

}  // namespace

bool RaceShadow::is_before(Mark past, const Warp& warp, Memo& memo) const {
  if (epoch(past) == memo.not_before) return false;
  if (epoch(past) == memo.before) return true;
  const bool is_it = is_ordered(stamp_of(past, warp), warp, Stamp::kNoLane);
  (is_it ? memo.before : memo.not_before) = epoch(past);
  return is_it;
}

// Notes one piece's access of a cell where nothing that anybody else did is in question.
bool RaceShadow::note_alone(Chunk& chunk, uint64_t cell, Mark now, bool writes, const View& view,
                            const Warp& warp, Memo& memo) const {
  const auto is_free = [&](Mark past) {
    return !is_foreign(past, now, view.first) || is_before(past, warp, memo);
  };
  if (!is_free(chunk.write[cell])) return false;
  Mark* read = &chunk.read[cell];
  if (writes) {
    if (!is_free(*read) || (!chunk.other_read.empty() && !is_free(chunk.other_read[cell]))) return false;
    chunk.write[cell] = now;
    return true;
  }
  if (epoch(*read) != epoch(now) && !is_free(*read)) {  // the first reader and the last are kept
    if (chunk.other_read.empty()) chunk.other_read.resize(chunk.read.size());
    read = &chunk.other_read[cell];
  }
  *read = joined(*read, now);
  return true;
}

// Cells that nobody else wrote of late, all looked at at once; of all of them the last reader is this warp,
// or nobody of late, or the same other warp.
bool RaceShadow::read_cells(Chunk& chunk, const uint64_t* cells, const Mark* now, size_t count,
                            const View& view, const Warp& warp, Memo& memo) const {
  constexpr Mark kEpoch = ~Mark{0} << kEpochShift;
  Mark written = 0, foreign = 0, differs = 0;
  const Mark first_read = chunk.read[cells[0]];
  for (size_t i = 0; i < count; ++i) {
    const Mark read = chunk.read[cells[i]];
    written |= is_foreign(chunk.write[cells[i]], now[i], view.first);
    foreign |= is_foreign(read, now[i], view.first) & kEpoch;
    differs |= (read ^ first_read) & kEpoch;
  }
  if (written || (foreign && differs)) return false;
  std::vector<Mark>& readers = foreign && !is_before(first_read, warp, memo) ? chunk.other_read : chunk.read;
  if (readers.empty()) readers.resize(chunk.read.size());
  for (size_t i = 0; i < count; ++i) {
    Mark& reader = readers[cells[i]];
    reader = joined(reader, now[i]);
  }
  return true;
}

// Cells that nobody else accessed of late.
bool RaceShadow::write_cells(Chunk& chunk, const uint64_t* cells, const Mark* now, size_t count, Mark first) {
  Mark foreign = 0;
  for (size_t i = 0; i < count; ++i)
    foreign |=
        is_foreign(chunk.write[cells[i]], now[i], first) | is_foreign(chunk.read[cells[i]], now[i], first);
  if (!chunk.other_read.empty())
    for (size_t i = 0; i < count; ++i) foreign |= is_foreign(chunk.other_read[cells[i]], now[i], first);
  if (foreign) return false;
  for (size_t i = 0; i < count; ++i) chunk.write[cells[i]] = now[i];
  return true;
}

bool RaceShadow::access(Warp& warp, const Op& op, const Scatter& scatter, bool writes) {
  constexpr size_t kMost = 4 * kLanes;
  const View view = view_of(warp, op, scatter.bytes);
  Memo memo{.before = 0, .not_before = epoch(view.now)};
  for (uint32_t begin = 0, end = 0; begin < scatter.pieces; begin = end) {
    const uint64_t index = scatter.offset[begin] / kChunkBytes;
    Chunk& chunk = chunk_at(scatter.offset[begin]);
    chunk.make_cells(view.finest, view.forgotten);
    chunk.newest = std::max(chunk.newest, view.now);
    const uint64_t of_piece = std::max<uint64_t>(scatter.bytes >> chunk.log_cell, 1);
    uint64_t cells[kMost];
    Mark now[kMost];
    size_t count = 0;
    while (end < scatter.pieces && scatter.offset[end] / kChunkBytes == index && count + of_piece <= kMost) {
      for (uint64_t i = 0; i < of_piece; ++i) {
        cells[count] = (scatter.offset[end] % kChunkBytes >> chunk.log_cell) + i;
        now[count++] = view.now | scatter.lane[end] << kLaneShift;
      }
      ++end;
    }
    if (writes ? write_cells(chunk, cells, now, count, view.first)
               : read_cells(chunk, cells, now, count, view, warp, memo))
      continue;
    for (size_t i = 0; i < count; ++i)
      if (!note_alone(chunk, cells[i], now[i], writes, view, warp, memo)) return false;
  }
  return true;
}

}  // namespace flatshard::ptx_vm
