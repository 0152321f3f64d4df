#include "ptx_vm/cluster.h"

#include <algorithm>

#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

void go_on(Warp& warp, const Knowledge& knowledge) {
  if (warp.block->kernel().code[warp.current].acquires) learn(warp, knowledge);
  ++warp.cluster_waits;
}

}  // namespace

void Cluster::arrive(Warp& warp, bool releases) {
  if (warp.cluster_arrivals != warp.cluster_waits)
    report(FindingKind::barrier_count, warp, std::countr_zero(warp.active),
           "arrives twice at the cluster barrier without a wait in between");
  ++warp.cluster_arrivals;
  ++warp.block->launch->progress;
  if (releases) publish(warp, gathering);
  warp.advance();
  maybe_complete();
}

void Cluster::wait(Warp& warp) {
  if (warp.cluster_arrivals == warp.cluster_waits)
    report(FindingKind::barrier_count, warp, std::countr_zero(warp.active),
           "waits at the cluster barrier without having arrived");
  if (phase >= warp.cluster_arrivals) return go_on(warp, completed);
  waiting.push_back(&warp);
  warp.state = Warp::State::at_barrier;
}

void Cluster::maybe_complete() {
  bool anybody = false;
  for (const Block* block : blocks)
    for (const Warp& warp : block->warps) {
      if (warp.state == Warp::State::ended) continue;
      if (warp.cluster_arrivals <= phase) return;
      anybody = true;
    }
  if (!anybody) return;
  ++phase;
  completed = gathering;
  Launch& launch = *blocks[0]->launch;
  for (Warp* warp : waiting) {
    go_on(*warp, completed);
    launch.wake(*warp);
  }
  waiting.clear();
  ++launch.progress;
}

uint32_t cluster_size(const Warp& warp) { return static_cast<uint32_t>(warp.block->cluster->blocks.size()); }

uint64_t address_in(uint32_t rank, uint64_t address) {
  return (address & ~kRankMask) | uint64_t{rank + 1} << kRankShift;
}

uint64_t address_in_block(uint64_t address) { return address & ~kWindowMask & ~kRankMask; }

Block& home_of(Warp& warp, int lane, uint64_t address) {
  const uint64_t rank = (address & kRankMask) >> kRankShift;
  if (rank == 0 || rank == warp.block->rank + 1) return *warp.block;
  if (rank > cluster_size(warp))
    report(FindingKind::out_of_bounds, warp, lane,
           str("names block ", rank - 1, " of a cluster of ", cluster_size(warp)));
  Block& home = *warp.block->cluster->blocks[rank - 1];
  if (home.live_warps == 0)
    report(FindingKind::cluster_exit, warp, lane,
           str("uses ", describe_address(warp, address | kSharedWindow), ", which has exited"));
  home.visits[warp.serial] = {&warp, warp.time(), warp.current, lane};
  return home;
}

void check_visits(Block& block) {
  for (const auto& [serial, visit] : block.visits) {
    const bool is_known = std::any_of(block.warps.begin(), block.warps.end(),
                                      [&](const Warp& w) { return knows(w, serial, visit.time); });
    if (is_known) continue;
    visit.visitor->current = visit.op;
    report(FindingKind::cluster_exit, *visit.visitor, visit.lane,
           str("uses the shared memory of block ", block.rank,
               " of the cluster, and nothing orders the access before the exit of that block"));
  }
}

}  // namespace flatshard::ptx_vm
