#include "comm/rank_group.h"

#include "kernels/ordered_sum.h"
#include "runtime/check.h"

namespace flatshard {

void RankGroup::all_gather(Stream& stream, const std::vector<GatherPart>& parts, const char* label) const {
  if (!between_) return inside_->all_gather(stream, parts, label);
  std::vector<GatherPart> across, within;
  for (const auto& [full, shard] : parts) {
    across.push_back({part_of_place(full), shard});
    within.push_back({full, part_of_place(full)});
  }
  between_->all_gather(stream, across, label);
  inside_->all_gather(stream, within, label);
}

// With two levels, this host's sum replaces the last part of the received data, and the other hosts' sums are
// received into the first part. So two levels need no more memory than one: a host has at least two ranks.
void RankGroup::exact_sum(Stream& stream, const ExactSum& a, const char* label) const {
  const int64_t n = a.full.size(), ranks = inside_->size(), part = n / ranks;
  Tensor received = a.workspace.slice(0, n);
  received.dtype = a.full.dtype;
  inside_->all_to_all(stream, received, a.full, label);
  const Tensor lanes = received.view({ranks, part});
  if (!between_) return ordered_sum(stream, {.y = a.shard, .lanes = lanes, .accumulate = a.accumulate});
  const Tensor of_host = a.workspace.slice(n - part, n), of_hosts = a.workspace.slice(0, part);
  ordered_sum(stream, {.y = of_host, .lanes = lanes});
  between_->all_to_all(stream, of_hosts, of_host, label);
  ordered_sum(
      stream,
      {.y = a.shard, .lanes = of_hosts.view({between_->size(), a.shard.size()}), .accumulate = a.accumulate});
}

void RankGroup::reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full,
                               const char* label) const {
  check(!between_, "reduce_scatter of ", label, ": the library's sums have one level");
  inside_->reduce_scatter(stream, shard, full, label);
}

void RankGroup::broadcast(Stream& stream, const Tensor& t, const char* label) const {
  if (between_ && inside_->rank() == 0) between_->broadcast(stream, t, 0, label);
  inside_->broadcast(stream, t, 0, label);
}

void RankGroup::log_to(CollectiveLog* log) const {
  inside_->log_to(log);
  if (between_) between_->log_to(log);
}

void RankGroup::reserve_workspace(Arena& pinned) const {
  inside_->reserve_workspace(pinned);
  if (between_) between_->reserve_workspace(pinned);
}

void RankGroup::connect(Stream& stream) const {
  inside_->connect(stream);
  if (between_) between_->connect(stream);
}

void RankGroup::graph_launches() const {
  inside_->graph_launches();
  if (between_) between_->graph_launches();
}

void RankGroup::graph_launched(Stream& stream) const {
  inside_->graph_launched(stream);
  if (between_) between_->graph_launched(stream);
}

int64_t RankGroup::library_bytes(Transport transport) const {
  return estimated_library_bytes(transport, *inside_) +
         (between_ ? estimated_library_bytes(transport, *between_) : 0);
}

std::vector<std::shared_ptr<void>> RankGroup::register_memory(const Tensor& memory) const {
  std::vector<std::shared_ptr<void>> registered{inside_->register_memory(memory)};
  if (between_) registered.push_back(between_->register_memory(memory));
  return registered;
}

}  // namespace flatshard
