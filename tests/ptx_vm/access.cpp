#include "tests/ptx_vm/access.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"
#include "tests/ptx_vm/grid.h"
#include "tests/ptx_vm/memory.h"
#include "tests/ptx_vm/report.h"

namespace flatshard::ptx_vm {
namespace {

// One access of a warp instruction, lane by lane.
struct Request {
  Warp& warp;
  const Op& op;
  uint32_t bytes;
  Access access;
  bool collides = false;

  bool writes() const { return access != Access::read; }
  [[noreturn]] void wrong(FindingKind kind, int lane, uint64_t address, const char* why = "") const {
    const char* verb = access == Access::read ? "reads " : access == Access::write ? "writes " : "updates ";
    report(kind, warp, lane, str(verb, bytes, " bytes at ", describe_address(warp, address), why));
  }
  void check_alignment(int lane, uint64_t address) const {
    if (address & (bytes - 1)) [[unlikely]]
      wrong(FindingKind::misaligned_access, lane, address, str(", address 0x", std::hex, address).c_str());
  }
  // Checks and updates the state of the bytes touched.
  void check_state(int lane, uint64_t address, unsigned char* state) const {
    if (writes()) {
      if (std::memchr(state, kGap, bytes))
        wrong(FindingKind::out_of_bounds, lane, address, ", between two variables");
      if (access == Access::write) {
        std::memset(state, kWritten, bytes);
        return;
      }
    }
    uint64_t low = 0x0101010101010101u, high = 0x0101010101010101u;
    std::memcpy(&low, state, std::min(bytes, 8u));
    if (bytes == 16) std::memcpy(&high, state + 8, 8);
    if (low == 0x0101010101010101u && high == 0x0101010101010101u) [[likely]]
      return;
    if (std::memchr(state, kGap, bytes))
      wrong(FindingKind::out_of_bounds, lane, address, ", between two variables");
    wrong(FindingKind::uninitialised_read, lane, address, ", which nobody has written");
  }
};

unsigned char* at_global(Request& r, int lane, uint64_t address) {
  Launch& launch = *r.warp.block->launch;
  Allocation*& home = launch.last_touched[r.op.index];
  if (!home || address - home->begin > home->bytes - r.bytes || home->bytes < r.bytes) [[unlikely]] {
    Allocation* found = heap().find(address);
    if (!found || address + r.bytes > found->end()) r.wrong(FindingKind::out_of_bounds, lane, address);
    if (!found->is_live) r.wrong(FindingKind::use_after_free, lane, address, ", which is freed");
    home = found;
  }
  r.check_alignment(lane, address);
  const uint64_t offset = address - home->begin;
  r.check_state(lane, address, home->state.data() + offset);
  if (launch.finds_races)
    r.collides |=
        home->races.access(r.warp, r.op, lane, address, offset + (home->begin & 15), r.bytes, r.writes());
  return reinterpret_cast<unsigned char*>(address);
}

unsigned char* at_shared(Request& r, int lane, uint64_t address) {
  Block& block = *r.warp.block;
  const uint64_t offset = address - kSharedBase;
  if (offset >= block.shared.size() || offset + r.bytes > block.shared.size()) [[unlikely]]
    r.wrong(FindingKind::out_of_bounds, lane, address | kSharedWindow);
  r.check_alignment(lane, address);
  r.check_state(lane, address | kSharedWindow, block.shared_state.data() + offset);
  if (block.launch->finds_races)
    r.collides |=
        block.shared_races.access(r.warp, r.op, lane, address | kSharedWindow, offset, r.bytes, r.writes());
  return block.shared.data() + offset;
}

unsigned char* at_local(Request& r, int lane, uint64_t address) {
  const uint64_t offset = address - kLocalBase, size = r.warp.block->kernel().local_bytes;
  if (offset >= size || offset + r.bytes > size) [[unlikely]]
    r.wrong(FindingKind::out_of_bounds, lane, address | kLocalWindow);
  r.check_alignment(lane, address);
  const uint64_t place = static_cast<uint64_t>(lane) * size + offset;
  r.check_state(lane, address | kLocalWindow, r.warp.local_state.data() + place);
  return r.warp.local.data() + place;
}

unsigned char* at_parameter(Request& r, int lane, uint64_t address) {
  std::vector<unsigned char>& parameters = r.warp.block->launch->parameters;
  if (r.writes() || address + r.bytes > parameters.size()) [[unlikely]]
    r.wrong(FindingKind::out_of_bounds, lane, address | kParamWindow);
  r.check_alignment(lane, address);
  return parameters.data() + address;
}

unsigned char* at_generic(Request& r, int lane, uint64_t address) {
  const uint64_t inside = address & ~kWindowMask;
  switch (address & kWindowMask) {
    case kSharedWindow:
      return at_shared(r, lane, inside);
    case kLocalWindow:
      return at_local(r, lane, inside);
    case kParamWindow:
      return at_parameter(r, lane, inside);
    default:
      return at_global(r, lane, address);
  }
}

template <class Address, unsigned char* (*place)(Request&, int, uint64_t)>
bool resolve_all(Request r, const Address* base, unsigned char** data) {
  for_each_lane(r.warp.active, [&](int lane) {
    data[lane] = place(r, lane, static_cast<uint64_t>(base[lane]) + static_cast<uint64_t>(r.op.immediate));
  });
  return r.collides;
}

}  // namespace

bool resolve(Warp& warp, const Op& op, uint32_t base_slot, uint32_t bytes, Access access,
             unsigned char** data) {
  ++warp.step;
  if (access == Access::write) ++warp.block->launch->progress;
  const Request r{warp, op, bytes, access};
  const auto* wide = warp.lanes<uint64_t>(base_slot);
  const auto* narrow = warp.lanes<uint32_t>(base_slot);
  switch (op.space) {
    case Space::global:
      return resolve_all<uint64_t, at_global>(r, wide, data);
    case Space::generic:
      return resolve_all<uint64_t, at_generic>(r, wide, data);
    case Space::param:
      return resolve_all<uint64_t, at_parameter>(r, wide, data);
    case Space::shared:
      return op.wide_address ? resolve_all<uint64_t, at_shared>(r, wide, data)
                             : resolve_all<uint32_t, at_shared>(r, narrow, data);
    case Space::local:
      return op.wide_address ? resolve_all<uint64_t, at_local>(r, wide, data)
                             : resolve_all<uint32_t, at_local>(r, narrow, data);
  }
  return false;
}

}  // namespace flatshard::ptx_vm
