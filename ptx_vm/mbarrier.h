#pragma once
// mbarriers: barriers in shared memory that count arrivals of threads and bytes of copies. A phase completes
// when all expected arrivals and all announced bytes have arrived; the next phase begins immediately.
// Everything before the arrivals of a phase, and its copies, happened before a successful wait for the phase.
// The state is stored outside the 8 bytes of memory, which must not be accessed until mbarrier.inval.

#include <cstdint>
#include <optional>
#include <string>

#include "ptx_vm/order.h"

namespace flatshard::ptx_vm {

struct Block;
struct Warp;

struct Mbarrier {
  static constexpr uint32_t kMostArrivals = (1 << 20) - 1;
  static constexpr int64_t kMostBytes = (1 << 20) - 1;

  uint32_t expected, pending;  // arrivals per phase; arrivals still missing
  int64_t bytes = 0;           // announced minus arrived; negative if they arrive first
  uint64_t phase = 0;
  Knowledge gathering{}, completed{};  // knowledge of the arrivals so far, and of the last completed phase

  // The initializing thread, and whether a fence made it visible to the async proxy and to other blocks.
  uint32_t serial, time, op;
  int lane;
  bool is_fenced = false;
  std::optional<uint64_t> shown_at{};  // the warp's arrivals at the cluster barrier before the fence
};

// An mbarrier that a lane may use: it is initialized, visible to the lane, and in a block that has not
// exited.
struct MbarrierPlace {
  Block* home;
  uint64_t offset;  // offset in its shared memory
  Mbarrier* state;
};

// Addresses are shared-memory addresses, with or without the window. All functions throw Finding.
void make_mbarrier(Warp& warp, int lane, uint64_t address, uint32_t count);
void end_mbarrier(Warp& warp, int lane, uint64_t address);
MbarrierPlace mbarrier_at(Warp& warp, int lane, uint64_t address);
// Returns the mbarrier for the async proxy, which requires a fence.
MbarrierPlace mbarrier_for_async(Warp& warp, int lane, uint64_t address);

struct Arrival {
  uint32_t count = 1;
  int64_t bytes = 0;         // bytes announced with the arrival
  bool drops = false;        // arrive_drop: later phases expect one arrival less
  bool may_complete = true;  // false: .noComplete
};
// Everything that the warp published before happens before the end of the phase.
void arrive(Warp& warp, int lane, Mbarrier& barrier, const Arrival& arrival);
void expect_bytes(Warp& warp, int lane, Mbarrier& barrier, int64_t bytes);
// Reports bytes that a lane or asynchronous work has received; `warp` is the lane's warp or the work's actor.
// The work happens before the end of the phase that counts the last of its bytes.
void complete_bytes(Warp& warp, const MbarrierPlace& place, int64_t bytes);

// Makes asynchronous work arrive, after it has run.
void arrive_late(Warp& actor, int lane, const MbarrierPlace& place);
// Expects one more arrival in this phase.
void expect_arrival(Warp& warp, int lane, Mbarrier& barrier);

// Executes a fence of this lane: the mbarriers that it initialized become visible to the async proxy and, if
// the fence has cluster scope, to other blocks after the next cluster barrier.
void fence_mbarriers(Warp& warp, int lane, bool for_cluster);

// For deadlock reports: describes the mbarrier that the warp polls and the arrivals that it still expects, or
// nothing.
std::string describe_poll(const Warp& warp);

}  // namespace flatshard::ptx_vm
