#include "ptx_vm/register_pool.h"

#include <algorithm>

#include "ptx_vm/grid.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint32_t kRegisters = 65536, kMostAtLaunch = 255, kUnit = 8;

}  // namespace

void RegisterPool::start(uint32_t threads, uint32_t warps, uint32_t blocks) {
  const uint32_t each = std::min(kMostAtLaunch, kRegisters / (threads * std::max(blocks, 1u)));
  each_.assign(warps, each / kUnit * kUnit);
  waiting_.clear();
  free_ = 0;
}

bool RegisterPool::grant(const Request& request) {
  uint32_t& each = each_[static_cast<size_t>(request.warp->index)];
  const int64_t needed = static_cast<int64_t>(request.each - each) * kLanes;
  if (needed > free_) return false;
  free_ -= needed;
  each = request.each;
  return true;
}

void RegisterPool::increase(Warp& warp, uint32_t each) {
  const uint32_t before = each_[static_cast<size_t>(warp.index)];
  if (each < before)
    report(FindingKind::register_pool, warp, 0,
           str("increases the registers per thread to ", each, ", which has ", before));
  if (grant({&warp, each})) return;
  warp.state = Warp::State::at_registers;
  waiting_.push_back({&warp, each});
}

void RegisterPool::decrease(Warp& warp, uint32_t each) {
  uint32_t& now = each_[static_cast<size_t>(warp.index)];
  if (each > now)
    report(FindingKind::register_pool, warp, 0,
           str("decreases the registers per thread to ", each, ", which has ", now));
  free_ += static_cast<int64_t>(now - each) * kLanes;
  now = each;
  std::erase_if(waiting_, [&](const Request& request) {
    if (!grant(request)) return false;
    warp.block->launch->wake(*request.warp);
    return true;
  });
  ++warp.block->launch->progress;
}

std::string RegisterPool::describe(const Warp& warp) const {
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const Request& r) { return r.warp == &warp; });
  if (found == waiting_.end()) return "";
  const uint32_t each = each_[static_cast<size_t>(warp.index)];
  return str(", which waits for ", found->each, " registers per thread; it has ", each, ", and of the ",
             (found->each - each) * kLanes, " more that the warp needs, ", free_, " are free");
}

}  // namespace flatshard::ptx_vm
