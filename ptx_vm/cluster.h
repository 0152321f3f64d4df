#pragma once
// Thread block clusters: blocks that run together and access each other's shared memory. A shared-memory
// address contains, from bit 24 on, the rank of a block in the cluster plus one, or 0 for the own block. The
// cluster barrier waits for all threads that have not exited. A block must not exit before the others have
// finished accessing its memory: each of their accesses must have happened before the exit of its last
// thread.

#include <cstdint>
#include <vector>

#include "ptx_vm/order.h"

namespace flatshard::ptx_vm {

struct Block;

inline constexpr int kRankShift = 24;
inline constexpr uint64_t kRankMask = uint64_t{0xff} << kRankShift;

struct Cluster {
  std::vector<Block*> blocks;  // indexed by rank
  uint64_t phase = 0;          // phase of the cluster barrier
  Knowledge gathering{}, completed{};
  std::vector<Warp*> waiting{};

  // A warp arrives at the barrier, then waits for the others; each arrival is followed by one wait.
  void arrive(Warp& warp, bool releases);
  void wait(Warp& warp);
  void maybe_complete();
};

// The last access of another block's warp to a block's shared memory.
struct Visit {
  Warp* visitor;
  uint32_t time, op;
  int lane;
};

uint32_t cluster_size(const Warp& warp);
// The address with the same offset in the block of this rank.
uint64_t address_in(uint32_t rank, uint64_t address);
// The offset in its block's shared memory, without rank and window.
uint64_t address_in_block(uint64_t address);
// Returns the block that owns the address the lane is about to access. Throws Finding if there is none or it
// has exited.
Block& home_of(Warp& warp, int lane, uint64_t address);
// Called at the exit of the block's last warp.
void check_visits(Block& block);

}  // namespace flatshard::ptx_vm
