// The barriers of a block: bar.sync, bar.arrive and bar.red.

#include <algorithm>
#include <bit>

#include "ptx_vm/grid.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

// The result of bar.red: slots id, count, result, predicate.
void deliver(Warp& warp, const Barrier& barrier) {
  const Op& op = warp.block->kernel().code[warp.current];
  const auto reduction = static_cast<Reduction>(op.immediate);
  const bool holds = reduction == Reduction::all ? barrier.ayes == barrier.arrived : barrier.ayes > 0;
  if (reduction == Reduction::count)
    std::fill_n(warp.lanes<uint32_t>(op.slot[2]), kLanes, barrier.ayes);
  else if (reduction != Reduction::none)
    warp.predicate(op.slot[2]) = holds ? kAllLanes : 0;
}

}  // namespace

void Launch::wake(Warp& warp) {
  warp.state = Warp::State::ready;
  woken.push_back(&warp);
}

void Barrier::begin() {
  expected = arrived = ayes = 0;
  waiting.clear();
  arrivers.clear();
  known_elsewhere.clear();
  observed.clear();
  known.clear();
}

void Block::complete(Barrier& barrier) {
  for (Warp* warp : barrier.waiting) {
    for (size_t w = 0; w < warps.size(); ++w) warp->known[w] = std::max(warp->known[w], barrier.known[w]);
    merge(warp->known_elsewhere, barrier.known_elsewhere);
    merge(warp->observed, barrier.observed);
    deliver(*warp, barrier);
    launch->wake(*warp);
  }
  if (barrier.is_for_all) settled = Epochs::next_mark();
  ++launch->progress;
  barrier.begin();
}

void Block::arrive(Warp& warp, uint32_t number, uint32_t expected, bool waits) {
  const auto lane = std::countr_zero(warp.active);
  if (number >= barriers.size())
    report(FindingKind::barrier_count, warp, lane, str("invalid barrier ", number));
  Barrier& barrier = barriers[number];
  const bool is_for_all = expected == 0;
  if (is_for_all) {
    expected = static_cast<uint32_t>(launch->block.count());
    if (live_warps < static_cast<int>(warps.size()))
      report(FindingKind::divergent_barrier, warp, lane,
             "some warps of the block have exited without reaching this barrier");
  } else if (expected % kLanes) {
    report(FindingKind::barrier_count, warp, lane, str(expected, " threads, must be a multiple of 32"));
  }
  if (barrier.arrived && barrier.expected != expected)
    report(FindingKind::barrier_count, warp, lane,
           str("barrier ", number, " is for ", expected, " threads here, but ", barrier.expected, " at ",
               kernel().where(barrier.arrivers[0]->current)));
  barrier.expected = expected;
  barrier.is_for_all = is_for_all;
  barrier.arrived += is_for_all ? static_cast<uint32_t>(std::popcount(warp.active)) : kLanes;
  barrier.arrivers.push_back(&warp);
  merge(barrier.known_elsewhere, warp.known_elsewhere);
  merge(barrier.observed, warp.observed);
  if (const Op& op = kernel().code[warp.current]; op.immediate)
    barrier.ayes += static_cast<uint32_t>(std::popcount(warp.predicate(op.slot[3]) & warp.active));
  barrier.known.resize(warps.size(), 0);
  for (size_t w = 0; w < warps.size(); ++w) barrier.known[w] = std::max(barrier.known[w], warp.known[w]);
  warp.advance();
  if (waits) {
    barrier.waiting.push_back(&warp);
    warp.state = Warp::State::at_barrier;
  }
  if (barrier.arrived > expected)
    report(FindingKind::barrier_count, warp, lane,
           str("more than ", expected, " threads arrive at barrier ", number));
  if (barrier.arrived == expected) complete(barrier);
}

void Block::warp_ended(Warp& warp) {
  check_stores_waited(warp);
  --live_warps;
  ++launch->progress;
  end_of_warp(warp);
  if (live_warps == 0) {
    check_loads_waited(*this);
    check_visits(*this);
  }
  cluster->maybe_complete();
  for (const Barrier& barrier : barriers)
    if (barrier.is_for_all && barrier.arrived)
      report(FindingKind::divergent_barrier, *barrier.arrivers[0], 0,
             str("warp ", warp.index, " of the block exits without reaching this barrier"));
}

}  // namespace flatshard::ptx_vm
