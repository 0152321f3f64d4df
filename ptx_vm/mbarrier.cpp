#include "ptx_vm/mbarrier.h"

#include <algorithm>

#include "ptx_vm/access.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint64_t kBytes = 8;

[[noreturn]] void misuse(const Warp& warp, int lane, const std::string& what) {
  report(FindingKind::mbarrier_misuse, warp, lane, what);
}

void check_alignment(const Warp& warp, int lane, uint64_t address) {
  if (address % kBytes)
    report(FindingKind::misaligned_access, warp, lane,
           str("an mbarrier at ", describe_address(warp, address | kSharedWindow)));
}

// As if the lane wrote the word: accesses to it as data must be ordered before.
uint64_t claim(Warp& warp, int lane, uint64_t address) {
  ++warp.step;
  const uint32_t active = warp.active;
  warp.active = 1u << lane;
  touch(warp, Space::shared, address, kBytes, Access::write);
  warp.active = active;
  return (address & ~kWindowMask) - kSharedBase;
}

void set_state(Block& block, uint64_t offset, ByteState state) {
  std::fill_n(block.shared_state.begin() + static_cast<ptrdiff_t>(offset), kBytes, state);
}

bool is_visible(const Mbarrier& b, const Warp& warp, int lane) {
  if (b.serial == warp.serial) return b.lane == lane || b.time < warp.time();
  return knows(warp, b.serial, b.time) || (b.shown_at && warp.cluster_waits > *b.shown_at);
}

Mbarrier& still_there(const Warp& actor, const MbarrierPlace& place) {
  const auto found = place.home->mbarriers.find(place.offset);
  if (found == place.home->mbarriers.end())
    misuse(actor, std::countr_zero(actor.active),
           "the mbarrier of this asynchronous work was invalidated before the work ended");
  return found->second;
}

void maybe_end_phase(Launch& launch, Mbarrier& b) {
  if (b.pending > 0 || b.bytes != 0) return;
  ++b.phase;
  b.pending = b.expected;
  b.completed = b.gathering;
  ++launch.progress;
}

}  // namespace

void make_mbarrier(Warp& warp, int lane, uint64_t address, uint32_t count) {
  if (count == 0 || count > Mbarrier::kMostArrivals)
    misuse(warp, lane,
           str("is initialized for ", count, " arrivals, not for 1 to ", Mbarrier::kMostArrivals));
  check_alignment(warp, lane, address);
  const uint64_t offset = claim(warp, lane, address);
  warp.block->mbarriers[offset] = {.expected = count,
                                   .pending = count,
                                   .serial = warp.serial,
                                   .time = warp.time(),
                                   .op = warp.current,
                                   .lane = lane};
  set_state(*warp.block, offset, kMbarrier);
  ++warp.block->launch->progress;
}

void end_mbarrier(Warp& warp, int lane, uint64_t address) {
  const MbarrierPlace place = mbarrier_at(warp, lane, address);
  set_state(*place.home, place.offset, kUnwritten);
  claim(warp, lane, address);
  set_state(*place.home, place.offset, kUnwritten);
  place.home->mbarriers.erase(place.offset);
}

MbarrierPlace mbarrier_at(Warp& warp, int lane, uint64_t address) {
  Block& home = home_of(warp, lane, address);
  const uint64_t offset = address_in_block(address) - kSharedBase;
  check_alignment(warp, lane, address);
  const auto found = home.mbarriers.find(offset);
  if (found == home.mbarriers.end())
    misuse(warp, lane, str("there is no mbarrier at ", describe_address(warp, address | kSharedWindow)));
  Mbarrier& b = found->second;
  if (!is_visible(b, warp, lane))
    misuse(warp, lane,
           str("uses the mbarrier at ", describe_address(warp, address | kSharedWindow), ", which ",
               describe_actor(warp, b.serial, b.lane, b.op), " initialized, and nothing orders the two"));
  return {&home, offset, &b};
}

MbarrierPlace mbarrier_for_async(Warp& warp, int lane, uint64_t address) {
  const MbarrierPlace place = mbarrier_at(warp, lane, address);
  const Mbarrier& b = *place.state;
  if (!b.is_fenced)
    misuse(
        warp, lane,
        str("asynchronous work would use the mbarrier at ", describe_address(warp, address | kSharedWindow),
            ", which ", describe_actor(warp, b.serial, b.lane, b.op),
            " initialized without a later fence.mbarrier_init"));
  return place;
}

void expect_bytes(Warp& warp, int lane, Mbarrier& b, int64_t bytes) {
  b.bytes += bytes;
  if (bytes < 0 || b.bytes > Mbarrier::kMostBytes)
    misuse(warp, lane, str("expects ", b.bytes, " bytes in a phase, at most ", Mbarrier::kMostBytes));
  ++warp.block->launch->progress;
}

void arrive(Warp& warp, int lane, Mbarrier& b, const Arrival& a) {
  if (a.bytes) expect_bytes(warp, lane, b, a.bytes);
  if (a.count == 0 || a.count > b.pending)
    misuse(warp, lane,
           str(a.count, " arrivals where ", b.pending, " of ", b.expected, " are still expected in phase ",
               b.phase));
  b.pending -= a.count;
  if (a.drops) b.expected -= a.count;
  if (b.pending == 0 && b.bytes < 0)
    misuse(warp, lane, str(-b.bytes, " more bytes have arrived than phase ", b.phase, " expects"));
  if (b.pending == 0 && !a.may_complete)
    misuse(warp, lane, "the last arrival of a phase must not be .noComplete");
  ++warp.block->launch->progress;
  maybe_end_phase(*warp.block->launch, b);
}

void arrive_late(Warp& actor, int lane, const MbarrierPlace& place) {
  Mbarrier& b = still_there(actor, place);
  publish(actor, b.gathering);
  arrive(actor, lane, b, {});
}

void expect_arrival(Warp& warp, int lane, Mbarrier& b) {
  if (++b.pending > Mbarrier::kMostArrivals)
    misuse(warp, lane, str("expects more than ", Mbarrier::kMostArrivals, " arrivals"));
}

void complete_bytes(Warp& warp, const MbarrierPlace& place, int64_t bytes) {
  Mbarrier& b = still_there(warp, place);
  ++warp.block->launch->progress;
  // Bytes arrive piece by piece, so a phase may end with the first piece; the rest counts for the next phase.
  if (b.pending == 0 && b.bytes > 0 && b.bytes < bytes) {
    bytes -= b.bytes;
    b.bytes = 0;
    maybe_end_phase(*warp.block->launch, b);
  }
  publish(warp, b.gathering);
  b.bytes -= bytes;
  if (b.bytes < -Mbarrier::kMostBytes)
    misuse(warp, std::countr_zero(warp.active), str(-b.bytes, " bytes have arrived that no phase expects"));
  maybe_end_phase(*warp.block->launch, b);
}

void fence_mbarriers(Warp& warp, int lane, bool for_cluster) {
  for (auto& [offset, b] : warp.block->mbarriers) {
    if (b.serial != warp.serial || b.lane != lane) continue;
    b.is_fenced = true;
    if (for_cluster && !b.shown_at) b.shown_at = warp.cluster_arrivals;
  }
}

std::string describe_poll(const Warp& warp) {
  if (!warp.polled || warp.block->kernel().code[warp.current].flow != Flow::poll) return "";
  const auto found = warp.block->mbarriers.find(address_in_block(warp.polled) - kSharedBase);
  if (found == warp.block->mbarriers.end()) return "";
  const Mbarrier& b = found->second;
  return str(" of the mbarrier at ", describe_address(warp, warp.polled), ", in phase ", b.phase, ", where ",
             b.pending, " of ", b.expected, " arrivals and ", b.bytes, " bytes are still expected");
}

}  // namespace flatshard::ptx_vm
