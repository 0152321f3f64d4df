#pragma once
// The place where this rank's shards of the parameters, gradient sums and optimizer state are stored. If
// shards are on the device, every call below does nothing and returns its argument. Offloaded shards are in
// host memory, where CPU kernels update them. The callers do not distinguish the two.
//
// One copy stream brings offloaded parameters to the device and another returns sums to the host, so that
// both overlap with computation. All units build their sums in one landing buffer on the device.

#include <optional>
#include <vector>

#include "comm/slots.h"

namespace flatshard {

// The streams that copy offloaded shards.
struct CopyStreams {
  Stream& to_device;
  Stream& to_host;
};

class ShardPlacement {
 public:
  // `copies` has streams if and only if options.offload is set.
  ShardPlacement(const std::vector<ParamList>& units, RankGroups groups, const UnitOptions& options,
                 UnitArenas arenas, std::optional<CopyStreams> copies);

  bool on_host() const { return copies_.has_value(); }

  // The stream for kernels that work on shards, in the order of `stream`.
  Stream& worker(Stream& stream) const { return on_host() ? stream.host_side() : stream; }
  // The stream that copies the shards that a collective on `gather` sends to the device.
  Stream& fetcher(Stream& gather) const { return on_host() ? copies_->to_device : gather; }
  // The stream that stores sums that are built on `reduce`.
  Stream& storer(Stream& reduce) const { return on_host() ? copies_->to_host : reduce; }

  // The copy of `t` on the other side of an offload: an allocation of `arena`, or `t` itself without offload.
  Tensor twin(Arena& arena, const Tensor& t) const { return on_host() ? arena.alloc(t.dtype, t.shape) : t; }
  // Copies `t` to its twin.
  void push(Stream& stream, const Tensor& twin, const Tensor& t) const;
  // `shard` on the device: a copy in `buffer`, or the shard itself without offload.
  Tensor pull(Stream& stream, const Tensor& buffer, const Tensor& shard) const;
  // Like pull(), for a collective on `gather`, after all work already queued on the fetcher.
  Tensor fetch(Stream& gather, const Tensor& buffer, const Tensor& shard);

  // A sum that `reduce` is building on the device: kernels write to `values`, or add to them.
  struct Build {
    Tensor values;
    bool accumulate;
    Tensor sum;  // place of the finished sum
    bool add;    // store() adds it to the sum
  };
  Build begin(Stream& reduce, const Tensor& sum, bool accumulate);
  // Brings a finished sum back to the device.
  Build reopen(Stream& reduce, const Tensor& sum);
  // Ends a Build; every Build must be stored.
  void store(Stream& reduce, const Build& build);

 private:
  std::optional<CopyStreams> copies_;
  Tensor landing_;  // device buffer of the largest shard's size
  Tensor arrived_;  // host buffer of a sum that is added to the sum there
  Event fetched_, built_, stored_, landing_free_;
};

}  // namespace flatshard
