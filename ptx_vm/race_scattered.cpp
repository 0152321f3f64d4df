// Scattered accesses of lanes, such as to the rows of a swizzled tile.

#include <algorithm>

#include "ptx_vm/grid.h"
#include "ptx_vm/race.h"

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

// Records the access of one piece to a cell if no other actor's access can conflict.
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

// Among the marks of these cells, those by other epochs, or lanes, that still count.
RaceShadow::Others RaceShadow::others_in(const std::vector<Mark>& marks, const Pieces& pieces, Mark first) {
  Others others;
  for (size_t i = 0; i < pieces.count; ++i) {
    const Mark mark = marks[pieces.cell[i]];
    const Mark counts = is_foreign(mark, pieces.now[i], first) ? ~Mark{0} : 0;
    others.oldest = std::min(others.oldest, mark | ~counts);
    others.newest = std::max(others.newest, mark & counts);
  }
  return others;
}

// True if all of them certainly happened before now; a cheap test of all together.
bool RaceShadow::is_past(const Others& others, const Warp& warp, Memo& memo) const {
  return !others.newest ||
         (epoch(others.oldest) == epoch(others.newest) && is_before(others.newest, warp, memo));
}

bool RaceShadow::read_pieces(Chunk& chunk, const Pieces& pieces, const View& view, const Warp& warp,
                             Memo& memo) const {
  if (!is_past(others_in(chunk.write, pieces, view.first), warp, memo)) return false;
  const Others readers = others_in(chunk.read, pieces, view.first);
  if (is_past(readers, warp, memo)) {
    for (size_t i = 0; i < pieces.count; ++i) chunk.read[pieces.cell[i]] = pieces.now[i];
    return true;
  }
  // The first reader and the last are kept.
  if (epoch(readers.oldest) != epoch(readers.newest)) return false;
  const bool is_mine = epoch(readers.newest) == epoch(view.now);
  if (!is_mine && chunk.other_read.empty()) chunk.other_read.resize(chunk.read.size());
  for (size_t i = 0; i < pieces.count; ++i) {
    Mark* reader = &chunk.read[pieces.cell[i]];
    if (!is_mine && is_foreign(*reader, pieces.now[i], view.first))
      reader = &chunk.other_read[pieces.cell[i]];
    *reader = joined(*reader, pieces.now[i]);
  }
  return true;
}

bool RaceShadow::write_pieces(Chunk& chunk, const Pieces& pieces, const View& view, const Warp& warp,
                              Memo& memo) const {
  for (const std::vector<Mark>* marks : {&chunk.write, &chunk.read, &chunk.other_read})
    if (!marks->empty() && !is_past(others_in(*marks, pieces, view.first), warp, memo)) return false;
  for (size_t i = 0; i < pieces.count; ++i) chunk.write[pieces.cell[i]] = pieces.now[i];
  return true;
}

bool RaceShadow::access(Warp& warp, const Op& op, const Scatter& scatter, bool writes) {
  const View view = view_of(warp, op, scatter.bytes);
  Memo memo{.before = 0, .not_before = epoch(view.now)};
  for (uint32_t at = 0; at < scatter.pieces;) {
    const uint64_t index = scatter.offset[at] / kChunkBytes;
    Chunk& chunk = chunk_at(scatter.offset[at]);
    chunk.make_cells(view.finest, view.forgotten);
    chunk.newest = std::max(chunk.newest, view.now);
    const uint64_t cells = std::max<uint64_t>(scatter.bytes >> chunk.log_cell, 1);  // of each
    uint32_t end = at + 1;
    while (end < scatter.pieces && scatter.offset[end] / kChunkBytes == index &&
           (end - at + 1) * cells <= Pieces::kMost)
      ++end;
    Pieces pieces;
    pieces.count = (end - at) * cells;
    for (uint64_t c = 0, i = 0; c < cells; ++c)
      for (uint32_t piece = at; piece < end; ++piece, ++i) {
        pieces.cell[i] = (scatter.offset[piece] % kChunkBytes >> chunk.log_cell) + c;
        pieces.now[i] = view.now | scatter.lane[piece] << kLaneShift;
      }
    at = end;
    if (writes ? write_pieces(chunk, pieces, view, warp, memo) : read_pieces(chunk, pieces, view, warp, memo))
      continue;
    for (size_t i = 0; i < pieces.count; ++i)
      if (!note_alone(chunk, pieces.cell[i], pieces.now[i], writes, view, warp, memo)) return false;
  }
  return true;
}

}  // namespace flatshard::ptx_vm
