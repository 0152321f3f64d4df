#pragma once
// Who touched a piece of memory last. Two accesses of which one writes are a race unless one happened before
// the other: because a barrier stood between them, or they are by the same lane. Time is counted per warp and
// advances at every synchronisation; a warp knows of each other warp of its block up to when it happened
// before now. Blocks of a launch are not ordered. Within a warp, other lanes' accesses of an earlier
// instruction are ordered by a barrier or __syncwarp only; shuffles do not order memory.

#include <cstdint>
#include <memory>
#include <vector>

namespace flatshard::ptx_vm {

struct Warp;
struct Op;

struct Stamp {
  static constexpr uint32_t kManyLanes = 63;
  uint32_t serial = 0;  // of the warp; 0: none
  uint32_t time = 0, step = 0;
  uint32_t what = 0;  // op, lane, whether it was a strong access

  static uint32_t pack(uint32_t op, uint32_t lane, bool is_strong) { return op << 8 | lane << 1 | is_strong; }
  uint32_t op() const { return what >> 8; }
  uint32_t lane() const { return what >> 1 & 63; }
  bool is_strong() const { return what & 1; }
};

// Lanes that access memory side by side, each `bytes` from `offset` on. One lane alone is the common case of
// scattered addresses; all lanes at one address count as one lane, kManyLanes.
struct Span {
  uint32_t first_lane, lanes;
  uint64_t address, offset;  // as reports call it; within the shadowed memory
  uint32_t bytes;            // of a lane, a power of two; the offset is a multiple of it
};

// The shadow of one contiguous piece of memory, made as it is touched.
class RaceShadow {
 public:
  // Shared memory passes from block to block: what others did with it does not count.
  explicit RaceShadow(bool is_shared = false) : is_shared_(is_shared) {}

  // Checks and notes an access. True when another lane of the same instruction wrote there too. Throws
  // Finding for a race.
  bool access(Warp& warp, const Op& op, const Span& span, bool writes);
  void clear() { chunks_.clear(); }

 private:
  static constexpr uint64_t kChunkBytes = 4096;
  struct Cell {
    Stamp write, read[2];
  };
  // Cells stand for 16 bytes until a lane's access is smaller, then all of the chunk's for fewer.
  struct Chunk {
    uint32_t cell_bytes = 16;
    std::vector<Cell> cells = std::vector<Cell>(kChunkBytes / 16);
    void refine(uint32_t to);
  };
  Chunk& chunk_at(uint64_t offset);
  bool is_ordered(const Stamp& past, const Warp& warp, uint32_t lane) const;
  bool note_write(Cell& cell, Warp& warp, const Stamp& now, uint64_t address) const;
  void note_read(Cell& cell, Warp& warp, const Stamp& now, uint64_t address) const;

  bool is_shared_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace flatshard::ptx_vm
