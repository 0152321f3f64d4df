#pragma once
// Who touched a piece of memory last. Two accesses of which one writes are a race unless one happened before
// the other: because a barrier stood between them, or they are by the same lane. Time is counted per warp and
// advances at every synchronisation; a warp knows of each other warp of its block up to when it happened
// before now. Blocks of a launch are not ordered. Within a warp, other lanes' accesses of an earlier
// instruction are ordered by a barrier or __syncwarp only; shuffles do not order memory.

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace flatshard::ptx_vm {

struct Warp;
struct Op;

struct Stamp {
  static constexpr uint32_t kManyLanes = 63;
  uint32_t serial = 0;  // of the warp; 0: none
  uint32_t time = 0, step = 0;
  uint32_t op = 0;
  uint8_t lane = 0;
  bool is_strong = false;
};

// The shadow of one contiguous piece of memory, made as it is touched.
class RaceShadow {
 public:
  // Checks and notes an access of `bytes` at `offset` by one lane. True when another lane of the same
  // instruction wrote there too. Throws Finding for a race; `address` is what it calls the place.
  bool access(Warp& warp, const Op& op, int lane, uint64_t address, uint64_t offset, uint32_t bytes,
              bool writes);
  void clear() { chunks_.clear(); }

 private:
  static constexpr uint64_t kChunkBytes = 4096;
  struct Cell {
    Stamp write, read[2];
  };
  // Cells stand for 4 bytes until an access is smaller or not aligned, then all of the chunk's for one.
  struct Chunk {
    uint32_t cell_bytes = 4;
    std::vector<Cell> cells = std::vector<Cell>(kChunkBytes / 4);
    void refine();
  };
  Chunk& chunk_at(uint64_t offset);
  static bool touch(Cell& cell, Warp& warp, const Op& op, int lane, uint64_t address, bool writes);

  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace flatshard::ptx_vm
