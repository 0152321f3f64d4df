#pragma once
// Copies from global to shared memory that go on while the lane that began them does: cp.async. What they
// read is captured when they begin; their bytes in shared memory are in flight, for nobody to touch, until
// the lane waits, and are written by the lane at that moment. So others still need a barrier behind the wait.
// Copies that a block never waited for end with it.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx_vm/program.h"

namespace flatshard::ptx_vm {

struct Warp;
struct Places;

// Of one instruction: a piece for each lane.
struct AsyncCopy {
  const Op* op;
  uint32_t bytes;       // of a piece
  uint32_t lanes;       // whose pieces are in flight
  uint64_t number = 0;  // of the warp's copies
  std::array<uint32_t, kLanes> group{};
  std::array<uint64_t, kLanes> to{};
  std::array<std::array<unsigned char, 16>, kLanes> data{};
};

struct AsyncCopies {
  std::vector<AsyncCopy> in_flight;
  std::array<uint32_t, kLanes> groups{};  // committed so far, by each lane
  uint64_t begun = 0;                     // copies so far
  uint32_t waited_at = 0;                 // the warp's time when its lanes last ended some
};

// A copy of the warp that is to begin: its data are zero until they are captured.
AsyncCopy& add_copy(Warp& warp, const Op& op, uint32_t bytes, uint32_t lanes);
// Begins it, to places that were checked as if they were written now.
void begin(Warp& warp, AsyncCopy& copy, const Places& to);
// Active lanes wait for their copies, but for those of the latest `groups` groups; without a commit for all.
void wait_for_groups(Warp& warp, uint32_t groups);
void wait_for_all(Warp& warp);

// Work does what the lane's wait for its first `count` copies would.
void finish_copies(Warp& owner, int lane, uint64_t count, Warp& actor);

// Who copies to [address, address + bytes) of the block's shared memory: "block (0,0,0) warp 1 lane 2 at
// F:9".
std::string describe_copy_to(const Warp& warp, uint64_t address, uint32_t bytes);

}  // namespace flatshard::ptx_vm
