#pragma once
// The race detector. Two accesses, at least one of them a write, are a race unless one happened before the
// other: because the same lane makes both, or because synchronization orders them. Each warp has a clock that
// advances at every synchronization, and a vector clock of the other warps of its block. Blocks of a launch
// are unordered. Within a warp, only a barrier or __syncwarp orders accesses of different lanes; shuffles do
// not order memory. Launches are ordered by their streams (timeline.h).
//
// The interval between two synchronizations of a warp is an epoch, with a unique number. For each cell of
// memory the shadow keeps three 64-bit marks: the last write and two reads. Marks of epochs before all epochs
// that may still be unordered are ignored, so nothing needs to be cleared between launches.

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "ptx_vm/program.h"

namespace flatshard::ptx_vm {

struct Warp;
struct Op;
struct Launch;
class Past;

// A mark: epoch : 32 | op : 18 | number of the access, modulo 128 : 7 | lane : 6 | strong : 1
using Mark = uint64_t;
inline constexpr int kEpochShift = 32, kOpShift = 14, kStepShift = 7, kLaneShift = 1;
inline constexpr uint32_t kMaxOps = 1 << (kEpochShift - kOpShift);

struct Epoch {
  uint32_t serial = 0;  // serial of the warp
  uint32_t time = 0;
};

// The epochs of one launch.
class Epochs {
 public:
  Epochs();
  uint32_t add(Epoch epoch);
  static Mark next_mark();
  const Epoch& at(uint32_t number) const { return all_[number - first_]; }
  Mark first_mark() const { return Mark{first_} << kEpochShift; }  // smaller marks are from earlier launches

 private:
  uint32_t first_;
  std::vector<Epoch> all_;
};

// A fence.proxy.async, which covers the marks before this one that belong to these lanes.
struct ProxyFence {
  Mark before;
  uint32_t time, lanes;
};

// A decoded mark.
struct Stamp {
  static constexpr uint32_t kManyLanes = 63, kNoLane = 64;
  Mark mark;
  uint32_t serial, time;  // serial and time of the warp; 0: another launch, or no mark

  uint32_t op() const { return static_cast<uint32_t>(mark >> kOpShift) & (kMaxOps - 1); }
  uint32_t lane() const { return mark >> kLaneShift & 63; }
  bool is_strong() const { return mark & 1; }
};

// Lanes that access contiguous memory from `offset` on, `bytes` each. Scattered accesses have one lane per
// span; all lanes at one address count as one lane, kManyLanes.
struct Span {
  uint32_t first_lane, lanes;
  uint64_t address, offset;  // address for reports; offset in the shadowed memory
  uint32_t bytes;            // bytes of a lane, a power of two that divides the offset
};

// Nonzero if the mark is not older than `first` and belongs to another epoch or lane. Branch-free, so that
// loops over it can be vectorized.
inline Mark is_foreign(Mark past, Mark now, Mark first) {
  constexpr Mark kWho = ~Mark{0} << kEpochShift | Mark{63} << kLaneShift;
  const auto is_recent = ~static_cast<Mark>(static_cast<int64_t>(past - first) >> 63);
  return is_recent & (past ^ now) & kWho;
}

// Scattered accesses of `bytes` bytes, each naturally aligned.
struct Scatter {
  uint32_t pieces = 0, bytes;
  uint64_t offset[kLanes];  // offset of each piece
  Mark lane[kLanes];        // the accessing lane; kManyLanes: several lanes
};

// The shadow of one contiguous memory region, created on demand.
class RaceShadow {
 public:
  // Shared memory is reused by successive blocks: marks of earlier blocks are ignored.
  explicit RaceShadow(bool is_shared = false) : is_shared_(is_shared) {}

  // Checks and records an access. Returns whether another lane of the same instruction wrote to the same
  // memory. Throws Finding for a race.
  bool access(Warp& warp, const Op& op, const Span& span, bool writes);
  // Checks and records an access by scattered lanes. Returns false if one of them needs the full check.
  bool access(Warp& warp, const Op& op, const Scatter& scatter, bool writes);
  // Checks and records an access by a stream operation other than a kernel, such as a copy. `address` is for
  // reports.
  void access(Past& past, uint64_t address, uint64_t offset, uint64_t bytes, bool writes);
  // Checks an operation that frees the memory.
  void end(Past& past, uint64_t address);
  // Checks that ordinary stores to memory which asynchronous work reads are followed by a fence.proxy.async
  // of the same thread before the work starts. Throws Finding.
  void check_proxy_fences(const Warp& actor, const Span& span);
  void clear() { chunks_.clear(); }

 private:
  static constexpr uint64_t kChunkBytes = 4096;
  // Cells are at most 16 bytes, and as small as the smallest access of a lane. If all accesses to a chunk are
  // contiguous and aligned accesses of 8, 16 or 32 lanes, a cell covers all of these lanes: a stripe. The
  // mark of its first lane then determines the marks of the others.
  struct Chunk {
    static constexpr int kNoStripes = -1;
    int log_cell = 4;               // log2 of a cell's bytes
    int log_lane = kNoStripes;      // log2 of a lane's bytes in a stripe
    uint64_t lead = 0;              // bytes of the first stripe before the chunk
    Mark newest = 0;                // no mark in the chunk is newer
    std::vector<Mark> write, read;  // marks of each cell
    std::vector<Mark> other_read;   // empty until a second read is stored
    Chunk();
    bool is_striped() const { return log_lane != kNoStripes; }
    uint64_t cell_of(uint64_t offset) const { return (offset % kChunkBytes + lead) >> log_cell; }
    // The first byte of a cell, or of an access at offset `from` in it.
    uint64_t begin_of(uint64_t cell, uint64_t from) const;
    bool is_at_cell(uint64_t offset) const;  // a cell, or the chunk, begins there
    bool takes(const Span& span) const;      // the span is whole stripes of the chunk
    Mark mark_at(const std::vector<Mark>& marks, uint64_t offset) const;          // mark of the lane there
    void begin_stripes(uint64_t lanes, uint64_t bytes_of_lane, uint64_t offset);  // discards all marks
    void make_cells(int log_bytes,
                    Mark forgotten);  // makes cells of at most 2^log_bytes bytes; clears a chunk without
                                      // marks from `forgotten` on
    void refine(int to);              // makes smaller cells; keeps all marks

   private:
    void clear(int bytes_of_cell, int bytes_of_lane, uint64_t before);
  };
  // The marks of contiguous cells, and the mark to store in the first of them.
  struct Cells {
    Chunk* chunk;
    uint64_t first_cell;
    Mark *write, *read, *other_read;  // other_read is null until a second read is stored
    uint64_t count, address;
    int log_cell, log_bytes;  // log2 of the bytes of a cell, and of a lane's part of these cells
    Mark now;                 // mark of the cell at the span's begin
    uint64_t from_begin;      // bytes from the span's begin to the first cell
    void need_other_read();
    Mark mark_at(uint64_t cell) const {
      return now + (((from_begin + (cell << log_cell)) >> log_bytes) << kLaneShift);
    }
  };

  // The earlier marks in the view of an access by a warp.
  struct View {
    Mark first;      // smaller marks are ignored
    Mark forgotten;  // chunks without a newer mark are reset
    Mark now;        // mark of lane 0
    int finest;      // log2 of the bytes of a cell that fits the access
  };
  // A cache of the last result about the order of epochs.
  struct Memo {
    Mark before, not_before;
  };
  // Scattered cells of a chunk, and the mark to store in each.
  struct Pieces {
    static constexpr size_t kMost = 4 * kLanes;
    size_t count = 0;
    uint64_t cell[kMost];
    Mark now[kMost];
  };
  struct Others {
    Mark oldest = ~Mark{0}, newest = 0;  // 0: there are none
  };
  Chunk& chunk_at(uint64_t offset);
  View view_of(Warp& warp, const Op& op, uint32_t bytes) const;
  static Cells cells_of(Chunk& chunk, const Span& span, uint64_t begin, uint64_t end, Mark now,
                        bool is_async);
  Stamp stamp_of(Mark mark, const Warp& warp) const;
  bool is_ordered(const Stamp& past, const Warp& warp, uint32_t lane) const;
  bool is_free(const Mark* marks, const Cells& cells, Mark first, const Warp& warp) const;
  bool write_together(Cells& cells, Mark first, const Warp& warp) const;
  bool read_together(Cells& cells, Mark first, const Warp& warp) const;
  bool note_write(Cells& cells, uint64_t cell, const Warp& warp) const;
  void note_read(Cells& cells, uint64_t cell, const Warp& warp) const;
  bool is_before(Mark past, const Warp& warp, Memo& memo) const;
  bool note_alone(Chunk& chunk, uint64_t cell, Mark now, bool writes, const View& view, const Warp& warp,
                  Memo& memo) const;
  static Others others_in(const std::vector<Mark>& marks, const Pieces& pieces, Mark first);
  bool is_past(const Others& others, const Warp& warp, Memo& memo) const;
  bool read_pieces(Chunk& chunk, const Pieces& pieces, const View& view, const Warp& warp, Memo& memo) const;
  bool write_pieces(Chunk& chunk, const Pieces& pieces, const View& view, const Warp& warp, Memo& memo) const;
  static void note(Chunk& chunk, uint64_t cell, Past& past, uint64_t address, bool writes);

  bool is_shared_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace flatshard::ptx_vm
