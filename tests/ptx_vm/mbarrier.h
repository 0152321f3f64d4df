#pragma once
// Barriers in shared memory that count arrivals of threads and bytes of copies (mbarrier). A phase ends when
// all arrivals that are expected have come and as many bytes as were announced; the next begins at once. Who
// waits for a phase in success knows what happened before its arrivals, and what its copies did. The state
// lies beside the memory, whose 8 bytes nobody may touch until mbarrier.inval.

#include <cstdint>
#include <optional>
#include <string>

#include "tests/ptx_vm/order.h"

namespace flatshard::ptx_vm {

struct Block;
struct Warp;

struct Mbarrier {
  static constexpr uint32_t kMostArrivals = (1 << 20) - 1;
  static constexpr int64_t kMostBytes = (1 << 20) - 1;

  uint32_t expected, pending;  // arrivals of a phase; those that have not come yet
  int64_t bytes = 0;           // announced and not come; negative where they come first
  uint64_t phase = 0;
  Knowledge gathering{}, completed{};  // of all arrivals so far, and at the end of the last phase

  // Who made it, and whether a fence showed it to the async proxy and to other blocks.
  uint32_t serial, time, op;
  int lane;
  bool is_fenced = false;
  std::optional<uint64_t> shown_at{};  // arrivals of its maker at the cluster's barrier before the fence
};

// One that a lane may use: made, visible to the lane, and not of a block that has ended.
struct MbarrierPlace {
  Block* home;
  uint64_t offset;  // in its shared memory
  Mbarrier* state;
};

// Addresses are those of shared memory, with or without the window. All throw Finding.
void make_mbarrier(Warp& warp, int lane, uint64_t address, uint32_t count);
void end_mbarrier(Warp& warp, int lane, uint64_t address);
MbarrierPlace mbarrier_at(Warp& warp, int lane, uint64_t address);
// The same for the async proxy, which takes a fence to see it.
MbarrierPlace mbarrier_for_async(Warp& warp, int lane, uint64_t address);

struct Arrival {
  uint32_t count = 1;
  int64_t bytes = 0;         // announced just before
  bool drops = false;        // will not come any more
  bool may_complete = true;  // the phase
};
// What a warp published to it before is known with the phase's end.
void arrive(Warp& warp, int lane, Mbarrier& barrier, const Arrival& arrival);
void expect_bytes(Warp& warp, int lane, Mbarrier& barrier, int64_t bytes);
// The bytes that a lane, or work (whose actor then is the warp), reports as come. What work did is known with
// the end of the phase that counts the last of its bytes.
void complete_bytes(Warp& warp, const MbarrierPlace& place, int64_t bytes);

// The arrival of work, after what it did.
void arrive_late(Warp& actor, int lane, const MbarrierPlace& place);
// One more arrival is expected in this phase.
void expect_arrival(Warp& warp, int lane, Mbarrier& barrier);

// A fence of this lane: what it made may be used by the async proxy, and where it is for the cluster also by
// those who then meet the warp at the cluster's barrier, whether that orders other memory or not.
void fence_mbarriers(Warp& warp, int lane, bool for_cluster);

// "; waits for mbarrier at byte 8, phase 1: 1 of 2 arrivals and 128 bytes have not come", or nothing.
std::string describe_poll(const Warp& warp);

}  // namespace flatshard::ptx_vm
