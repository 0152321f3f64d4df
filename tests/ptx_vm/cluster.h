#pragma once
// Blocks that run together and reach into each other's shared memory. An address of shared memory holds, from
// bit 24 on, the rank of a block in the cluster and one more, or 0: the block itself. The cluster's barrier
// waits for every thread that has not exited. A block must not end before the others are done with its
// memory: every access of theirs must be known to one of its threads when the last of them ends.

#include <cstdint>
#include <vector>

#include "tests/ptx_vm/order.h"

namespace flatshard::ptx_vm {

struct Block;

inline constexpr int kRankShift = 24;
inline constexpr uint64_t kRankMask = uint64_t{0xff} << kRankShift;

struct Cluster {
  std::vector<Block*> blocks;  // by rank
  uint64_t phase = 0;          // of its barrier
  Knowledge gathering{}, completed{};
  std::vector<Warp*> waiting{};

  // A warp comes, and waits for the others or goes on; each arrival is followed by one wait.
  void arrive(Warp& warp, bool releases);
  void wait(Warp& warp);
  void maybe_complete();
};

// What another block did last with a block's shared memory.
struct Visit {
  Warp* visitor;
  uint32_t time, op;
  int lane;
};

uint32_t cluster_size(const Warp& warp);
// The same place in the block of this rank.
uint64_t address_in(uint32_t rank, uint64_t address);
// The address as its block alone has it: without rank and window.
uint64_t address_in_block(uint64_t address);
// The block whose memory the lane names; to be used now. Throws Finding where there is none, or it has ended.
Block& home_of(Warp& warp, int lane, uint64_t address);
// The block's last warp ends.
void check_visits(Block& block);

}  // namespace flatshard::ptx_vm
