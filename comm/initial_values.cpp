// The initial values of a unit's shards.

#include "comm/sharded_unit.h"
#include "kernels/elementwise.h"
#include "runtime/memory.h"

namespace flatshard {

// Each rank initializes its own shard. With sync_initial_values rank 0 initializes all parameters and sends
// them to its peers in the other groups, and each peer sends them to its group.
void ShardedUnit::make_initial_values(Stream& compute, const FlatLayout& layout, const Tensor& shard,
                                      const InitialValues& values) {
  if (layout.empty()) return;
  const auto fill = [&](Stream& stream, const Tensor& t, const std::vector<FlatLayout::Values>& all) {
    zero(stream, t);  // clears the padding
    for (const auto& [param, first, tensor] : all) values(stream, params()[param], first, tensor);
  };
  if (!options_.sync_initial_values || comms_.groups().ranks == 1)
    return fill(shards_.worker(compute), shard, layout.values_in_shard(shard_index(), shard));
  Tensor full = gradient_slots_.received();
  full.dtype = shard.dtype;
  full.shape = {layout.size()};
  if (shard_index() == 0 && comms_.replicas.rank() == 0) fill(compute, full, layout.values(full));
  comms_.replicas.broadcast(compute, full, name_);
  comms_.compute.broadcast(compute, full, name_);
  copy(compute, shard, own_shard(full));
}

}  // namespace flatshard
