#pragma once
// A warp: 32 lanes, their registers, and the groups of lanes that have diverged to different instructions.
// The group at the lowest instruction runs first; since compilers lay out code in order, groups reconverge
// where their paths join.

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "ptx_vm/async_copy.h"
#include "ptx_vm/order.h"
#include "ptx_vm/program.h"
#include "ptx_vm/race.h"

namespace flatshard::ptx_vm {

struct Block;

struct Group {
  uint32_t pc, mask;
  bool waits = false;  // waits for other lanes of its warp
};

struct Warp {
  enum class State { ready, at_barrier, at_registers, ended };

  unsigned char* registers = nullptr;
  uint32_t active = 0;  // lanes that execute the current op
  Block* block = nullptr;
  int index = 0;      // index in the block
  uint32_t live = 0;  // lanes that have not exited
  State state = State::ready;
  std::vector<Group> groups;  // ordered by pc, at most one per pc
  uint64_t poll_turn = 0;
  uint64_t executed = 0;  // number of ops
  uint32_t current = 0;   // index of the running op, for findings
  bool polls = false;     // its last op was an unsuccessful poll

  uint64_t polled = 0;                               // generic address of the mbarrier it last polled
  uint64_t acquired_from = 0, acquired = 0;          // address and value of its last ld.acquire
  uint64_t cluster_arrivals = 0, cluster_waits = 0;  // numbers of arrivals and waits at the cluster barrier

  // State of the race detector.
  uint32_t serial = 0;         // unique among all warps and asynchronous works of all launches, never 0
  bool is_async = false;       // asynchronous work instead of a warp (async.h)
  bool adds_in_order = false;  // its reduction must be ordered like other accesses
  uint32_t async_time = 1;     // the clock of asynchronous work
  uint32_t step = 0;           // counts accesses to memory
  uint32_t epoch = 0;          // number of the current epoch (race.h); 0: not begun
  Knowledge known_elsewhere;   // knowledge about warps of other blocks
  Knowledge observed;          // read by strong accesses, known from the next fence on
  Knowledge fenced;            // known at the last fence, published by strong accesses
  std::vector<ProxyFence> proxy_fences;  // sorted by time
  std::vector<uint32_t>
      known;  // each warp of the block: its time that happened before now; [index] is our own

  AsyncCopies copies;
  std::vector<unsigned char> local, local_state;  // each lane has local_bytes bytes; the state is a ByteState

  template <class T>
  T* lanes(uint32_t slot) const {
    return reinterpret_cast<T*>(registers + slot);
  }
  uint32_t& predicate(uint32_t slot) const { return *reinterpret_cast<uint32_t*>(registers + slot); }
  void set_predicate(uint32_t slot, uint32_t mask) const {
    uint32_t& p = predicate(slot);
    p = (p & ~active) | (mask & active);
  }
  void advance() {
    ++known[static_cast<size_t>(index)];
    epoch = 0;
  }
  uint32_t time() const { return is_async ? async_time : known[static_cast<size_t>(index)]; }
};

// Runs until the warp waits at a barrier, has exited, polls without success, or has executed `budget` ops. If
// it `polls`, its groups of lanes take turns.
void run(Warp& warp, uint64_t budget, bool polls);

// Calls body(lane) for every active lane, in order.
template <class Body>
inline void for_each_lane(uint32_t mask, Body&& body) {
  for (; mask; mask &= mask - 1) body(std::countr_zero(mask));
}

}  // namespace flatshard::ptx_vm
