#pragma once
// What an access to memory is made of while it is checked: the request of one lane or of some side by side,
// and the piece of memory that it goes to. Only access*.cpp know these.

#include "tests/ptx_vm/access.h"
#include "tests/ptx_vm/byte_states.h"
#include "tests/ptx_vm/report.h"

namespace flatshard::ptx_vm {

// One piece of an instruction's access: of one lane, or of several side by side.
struct Request {
  Warp& warp;
  const Op& op;
  uint32_t bytes;  // of a lane
  Access access;
  uint32_t first_lane = 0, lanes = 1;
  bool collides = false;

  bool writes() const { return access != Access::read; }
  uint64_t all_bytes() const { return uint64_t{bytes} * lanes; }
  [[noreturn]] void wrong(FindingKind kind, uint64_t address, const std::string& why = "") const;
};

struct Region {
  uint64_t address, bytes;  // generic address of its begin
  unsigned char* data;
  unsigned char* state;
  RaceShadow* races;       // or null
  bool is_patchy = false;  // some bytes may be none to write to: gaps between variables, or copies in flight
  unsigned char* whole = nullptr;  // or null
  bool is_whole(uint64_t offset, uint64_t size) const {
    return whole && whole[offset / kWholeBytes] == kIsWhole &&
           whole[(offset + size - 1) / kWholeBytes] == kIsWhole;
  }
  // The bytes from `offset` on are written; now and then this looks whether all around them are.
  void note_written(uint64_t offset) const;
};

// Lanes anywhere in one piece of memory, all looked at in one go. False where one needs a closer look.
bool pass_scattered(const Request& request, const Region& region, const uint64_t* address, Places* places);

}  // namespace flatshard::ptx_vm
