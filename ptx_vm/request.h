#pragma once
// The parts of a memory access while it is checked: the request of one lane or of contiguous lanes, and the
// memory region. Only access*.cpp uses them.

#include "ptx_vm/access.h"
#include "ptx_vm/byte_states.h"
#include "ptx_vm/report.h"

namespace flatshard::ptx_vm {

// Part of an instruction's access: one lane, or several contiguous ones.
struct Request {
  Warp& warp;
  const Op& op;
  uint32_t bytes;  // bytes per lane
  Access access;
  uint32_t first_lane = 0, lanes = 1;
  bool collides = false;

  bool writes() const { return access != Access::read; }
  uint64_t all_bytes() const { return uint64_t{bytes} * lanes; }
  [[noreturn]] void wrong(FindingKind kind, uint64_t address, const std::string& why = "") const;
};

struct Region {
  uint64_t address, bytes;  // address: generic address of its first byte
  unsigned char* data;
  unsigned char* state;
  RaceShadow* races;               // null if there is none
  bool is_patchy = false;          // may contain bytes that must not be written: gaps, or copies in flight
  unsigned char* whole = nullptr;  // null if there is none
  bool is_whole(uint64_t offset, uint64_t size) const {
    return whole && whole[offset / kWholeBytes] == kIsWhole &&
           whole[(offset + size - 1) / kWholeBytes] == kIsWhole;
  }
  // Called after a write at `offset`; occasionally tests whether the surrounding kWholeBytes are all written.
  void note_written(uint64_t offset) const;
};

// Checks scattered lanes in one region together. Returns false if one of them needs the full check.
bool pass_scattered(const Request& request, const Region& region, const uint64_t* address, Places* places);

}  // namespace flatshard::ptx_vm
