#include "ptx_vm/bulk.h"

#include <algorithm>
#include <memory>

#include "ptx_vm/grid.h"
#include "ptx_vm/report.h"

namespace flatshard::ptx_vm {
namespace {

BulkGroups& groups_of(Warp& warp, int lane) { return warp.block->stores[warp.index * kLanes + lane]; }

}  // namespace

void issue_load(Warp& warp, int lane, const MbarrierPlace& barrier, int64_t bytes,
                std::function<void(Warp& actor)> copy) {
  barrier.home->loads.push_back(
      warp.block->launch->async.issue(warp, lane, [=, copy = std::move(copy)](Warp& actor) {
        copy(actor);
        complete_bytes(actor, barrier, bytes);
      }));
}

void issue_store(Warp& warp, int lane, std::function<Bytes(Warp& actor)> read,
                 std::function<void(Warp& actor, const Bytes& data)> write) {
  AsyncQueue& async = warp.block->launch->async;
  const auto data = std::make_shared<Bytes>();
  BulkGroups::Store store;
  store.read = async.issue(warp, lane, [=](Warp& actor) { *data = read(actor); });
  store.write = async.issue(
      warp, lane, [=](Warp& actor) { write(actor, *data); }, store.read);
  groups_of(warp, lane).open.push_back(store);
}

void commit_stores(Warp& warp, int lane) {
  BulkGroups& groups = groups_of(warp, lane);
  groups.committed.push_back(std::move(groups.open));
  groups.open.clear();
}

void wait_for_stores(Warp& warp, int lane, uint64_t groups, bool reads_only) {
  std::vector<std::vector<BulkGroups::Store>>& all = groups_of(warp, lane).committed;
  if (all.size() <= groups) return;
  AsyncQueue& async = warp.block->launch->async;
  const auto end = all.end() - static_cast<ptrdiff_t>(groups);
  for (auto group = all.begin(); group != end; ++group)
    for (BulkGroups::Store& store : *group) {
      async.finish(store.read);
      learn(warp, *store.read);
      store.is_read = true;
      if (reads_only) continue;
      async.finish(store.write);
      learn(warp, *store.write);
    }
  if (!reads_only) all.erase(all.begin(), end);
}

void check_loads_waited(Block& block) {
  for (const AsyncHandle& load : block.loads)
    if (std::none_of(block.warps.begin(), block.warps.end(),
                     [&](const Warp& warp) { return knows(warp, load->actor.serial, load->actor.time()); }))
      report(FindingKind::async_race, load->actor, load->lane,
             "the block exits without waiting for this load into its shared memory");
}

void check_stores_waited(Warp& warp) {
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto found = warp.block->stores.find(warp.index * kLanes + lane);
    if (found == warp.block->stores.end()) continue;
    BulkGroups& groups = found->second;
    groups.committed.push_back(groups.open);
    for (const std::vector<BulkGroups::Store>& group : groups.committed)
      for (const BulkGroups::Store& store : group)
        if (!store.is_read)
          report(FindingKind::async_race, store.read->actor, lane,
                 "the thread exits without waiting until this store has read shared memory");
  }
}

}  // namespace flatshard::ptx_vm
