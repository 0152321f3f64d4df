#pragma once
// cp.async: copies from global to shared memory that run concurrently with the lane that issues them. The
// source is read at issue. The target bytes are in flight, and must not be accessed, until the lane waits;
// the lane then writes them. So other lanes still need a barrier after the wait. Copies without a wait end
// with the block.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ptx_vm/program.h"

namespace flatshard::ptx_vm {

struct Warp;
struct Places;

// The copies of one instruction, one per lane.
struct AsyncCopy {
  const Op* op;
  uint32_t bytes;       // bytes of a piece
  uint32_t lanes;       // lanes with a piece in flight
  uint64_t number = 0;  // number among the warp's copies
  std::array<uint32_t, kLanes> group{};
  std::array<uint64_t, kLanes> to{};
  std::array<std::array<unsigned char, 16>, kLanes> data{};
};

struct AsyncCopies {
  std::vector<AsyncCopy> in_flight;
  std::array<uint32_t, kLanes> groups{};  // committed groups, by lane
  uint64_t begun = 0;                     // copies issued so far
  uint32_t waited_at = 0;                 // the warp's time when a wait last completed copies
};

// Adds a copy to the warp. Its data are zero until captured.
AsyncCopy& add_copy(Warp& warp, const Op& op, uint32_t bytes, uint32_t lanes);
// Issues the copy. Its targets must already have been checked like writes.
void begin(Warp& warp, AsyncCopy& copy, const Places& to);
// Active lanes wait for their copies, except for copies in the latest `groups` groups.
void wait_for_groups(Warp& warp, uint32_t groups);
void wait_for_all(Warp& warp);

// Completes the lane's first `count` copies by asynchronous work, as a wait by the lane would.
void finish_copies(Warp& owner, int lane, uint64_t count, Warp& actor);

// Describes the issuer of the copy to [address, address + bytes) of the block's shared memory: "block (0,0,0)
// warp 1 lane 2 at F:9".
std::string describe_copy_to(const Warp& warp, uint64_t address, uint32_t bytes);

}  // namespace flatshard::ptx_vm
