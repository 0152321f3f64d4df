#include "comm/shard_placement.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "runtime/memory.h"

namespace flatshard {

ShardPlacement::ShardPlacement(const std::vector<ParamList>& units, RankGroups groups,
                               const UnitOptions& options, UnitArenas arenas,
                               std::optional<CopyStreams> copies)
    : copies_(copies) {
  check(on_host() == options.offload, "offloaded shards need copy streams, others have none");
  if (!on_host()) return;
  int64_t largest = 0;
  for (const ParamList& params : units)
    largest = std::max(largest, FlatLayout::trainable(params, groups.size, groups.count()).shard_size());
  if (largest == 0) return;
  landing_ = arenas.exchange.alloc(DType::f32, {largest});
  if (options.reduction != Reduction::exact) arrived_ = arenas.gradients.alloc(DType::f32, {largest});
}

void ShardPlacement::push(Stream& stream, const Tensor& twin, const Tensor& t) const {
  if (on_host()) copy(stream, twin, t);
}

Tensor ShardPlacement::pull(Stream& stream, const Tensor& buffer, const Tensor& shard) const {
  if (!on_host()) return shard;
  copy(stream, buffer, shard);
  return buffer;
}

Tensor ShardPlacement::fetch(Stream& gather, const Tensor& buffer, const Tensor& shard) {
  const Tensor values = pull(fetcher(gather), buffer, shard);
  if (!on_host()) return values;
  copies_->to_device.record(fetched_);
  gather.wait(fetched_);  // this rank's part is on the device
  return values;
}

ShardPlacement::Build ShardPlacement::begin(Stream& reduce, const Tensor& sum, bool accumulate) {
  if (!on_host()) return {.values = sum, .accumulate = accumulate, .sum = sum, .add = false};
  reduce.wait(landing_free_);  // the previous sum has been copied
  return {.values = landing_.slice(0, sum.size()), .accumulate = false, .sum = sum, .add = accumulate};
}

ShardPlacement::Build ShardPlacement::reopen(Stream& reduce, const Tensor& sum) {
  const Build build = begin(reduce, sum, false);
  if (!on_host()) return build;
  copies_->to_host.record(stored_);
  reduce.wait(stored_);  // the sum on the host is complete
  copy(reduce, build.values, sum);
  return build;
}

void ShardPlacement::store(Stream& reduce, const Build& build) {
  if (!on_host()) return;
  reduce.record(built_);
  Stream& stream = copies_->to_host;
  stream.wait(built_);
  const Tensor arrived = build.add ? arrived_.slice(0, build.sum.size()) : build.sum;
  copy(stream, arrived, build.values);
  stream.record(landing_free_);
  if (build.add) add(stream.host_side(), {.y = build.sum, .a = build.sum, .b = arrived});
}

}  // namespace flatshard
