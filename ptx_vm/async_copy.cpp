#include "ptx_vm/async_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "ptx_vm/access.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/report.h"

namespace flatshard::ptx_vm {
namespace {

void mark(const Warp& warp, const unsigned char* data, uint32_t bytes, ByteState state) {
  Block& block = *warp.block;
  std::memset(block.shared_state.data() + (data - block.shared.data()), state, bytes);
}

void finish(Warp& warp, AsyncCopy& copy, uint32_t lanes) {
  for_each_lane(lanes, [&](int lane) {
    const uint64_t offset = (copy.to[static_cast<size_t>(lane)] & ~kWindowMask) - kSharedBase;
    mark(warp, warp.block->shared.data() + offset, copy.bytes, kUnwritten);
  });
  Places places;
  const uint32_t active = std::exchange(warp.active, lanes);
  resolve_shared(warp, *copy.op, copy.to.data(), copy.bytes, Access::write, &places);
  for_each_lane(lanes, [&](int lane) {
    std::memcpy(places.at(lane, copy.bytes), copy.data[static_cast<size_t>(lane)].data(), copy.bytes);
  });
  warp.active = active;
  copy.lanes &= ~lanes;
}

// Finishes the pieces of active lanes among lanes_due(copy).
template <class LanesDue>
void finish_due(Warp& warp, LanesDue&& lanes_due) {
  std::vector<AsyncCopy>& all = warp.copies.in_flight;
  for (AsyncCopy& copy : all) {
    const uint32_t due = copy.lanes & warp.active & lanes_due(copy);
    if (due) finish(warp, copy, due);
    if (due) warp.copies.waited_at = warp.time();
  }
  warp.block->copies_in_flight -= std::erase_if(all, [](const AsyncCopy& copy) { return !copy.lanes; });
}

}  // namespace

AsyncCopy& add_copy(Warp& warp, const Op& op, uint32_t bytes, uint32_t lanes) {
  ++warp.block->copies_in_flight;
  return warp.copies.in_flight.emplace_back(AsyncCopy{
      .op = &op, .bytes = bytes, .lanes = lanes, .number = warp.copies.begun++, .group = warp.copies.groups});
}

void begin(Warp& warp, AsyncCopy& copy, const Places& to) {
  if (to.collides)
    report(FindingKind::colliding_writes, warp, std::countr_zero(copy.lanes),
           "two lanes of the warp copy to the same address");
  for_each_lane(copy.lanes, [&](int lane) {
    const unsigned char* data = to.at(lane, copy.bytes);
    copy.to[static_cast<size_t>(lane)] =
        kSharedWindow + kSharedBase + static_cast<uint64_t>(data - warp.block->shared.data());
    mark(warp, data, copy.bytes, kInFlight);
  });
}

void wait_for_groups(Warp& warp, uint32_t groups) {
  finish_due(warp, [&](const AsyncCopy& copy) {
    uint32_t due = 0;
    for (size_t lane = 0; lane < kLanes; ++lane)
      due |= static_cast<uint32_t>(warp.copies.groups[lane] - copy.group[lane] > groups) << lane;
    return due;
  });
}

void wait_for_all(Warp& warp) {
  finish_due(warp, [](const AsyncCopy&) { return kAllLanes; });
}

void finish_copies(Warp& owner, int lane, uint64_t count, Warp& actor) {
  std::vector<AsyncCopy>& all = owner.copies.in_flight;
  for (AsyncCopy& copy : all)
    if (copy.number < count && copy.lanes >> lane & 1) finish(actor, copy, 1u << lane);
  owner.block->copies_in_flight -= std::erase_if(all, [](const AsyncCopy& copy) { return !copy.lanes; });
  // Copies that the lane itself has waited for since were its own writes.
  if (owner.copies.waited_at) learn(actor, {{owner.serial, owner.copies.waited_at}});
}

std::string describe_copy_to(const Warp& warp, uint64_t address, uint32_t bytes) {
  const uint64_t begin = address & ~kWindowMask;
  for (const Warp& other : warp.block->warps)
    for (const AsyncCopy& copy : other.copies.in_flight)
      for (uint32_t lanes = copy.lanes; lanes; lanes &= lanes - 1) {
        const int lane = std::countr_zero(lanes);
        const uint64_t to = copy.to[static_cast<size_t>(lane)] & ~kWindowMask;
        if (to < begin + bytes && begin < to + copy.bytes)
          return describe_actor(warp, other.serial, lane, copy.op->index);
      }
  return "nobody";
}

}  // namespace flatshard::ptx_vm
