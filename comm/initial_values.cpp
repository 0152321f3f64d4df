// The initial values of a unit's shards.

#include "comm/sharded_unit.h"
#include "kernels/elementwise.h"
#include "runtime/memory.h"

namespace flatshard {

// Each rank makes what it owns; or rank 0 makes all of it, and sends it to its group's peers in the other
// groups, and these to their groups.
void ShardedUnit::make_initial_values(Stream& compute, const FlatLayout& layout, const Tensor& shard,
                                      const InitialValues& values) {
  if (layout.empty()) return;
  const auto fill = [&](Stream& stream, const Tensor& t, const std::vector<FlatLayout::Values>& all) {
    zero(stream, t);  // the padding
    for (const auto& [param, first, tensor] : all) values(stream, params()[param], first, tensor);
  };
  if (!options_.sync_initial_values || comms_.groups().ranks == 1)
    return fill(shards_.worker(compute), shard, layout.values_in_shard(shard_index(), shard));
  Tensor whole = gradient_slots_.received();
  whole.dtype = shard.dtype;
  whole.shape = {layout.size()};
  if (shard_index() == 0 && comms_.replicas.rank() == 0) fill(compute, whole, layout.values(whole));
  comms_.replicas.broadcast(compute, whole, 0, name_);
  comms_.compute.broadcast(compute, whole, 0, name_);
  copy(compute, shard, own_part(whole));
}

}  // namespace flatshard
