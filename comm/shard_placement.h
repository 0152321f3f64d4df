#pragma once
// Where shards live: this rank's part of the values, the sums of gradients and the optimizer's state. They
// are on the device, where every call below does nothing and returns what it is given; or they are offloaded,
// and then live in host memory, where CPU kernels update them. Only this class knows the difference.
//
// Offloaded values reach the device on one copy stream and sums leave it on another, so that both overlap
// with computation. A sum is built in a landing buffer on the device, of which there is one for all units.

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

  // For kernels that work on shards, in the order of `stream`.
  Stream& worker(Stream& stream) const { return on_host() ? stream.host_side() : stream; }
  // Brings shards that a collective on `gather` sends.
  Stream& fetcher(Stream& gather) const { return on_host() ? copies_->to_device : gather; }
  // Stores sums that are built on `reduce`.
  Stream& storer(Stream& reduce) const { return on_host() ? copies_->to_host : reduce; }

  // The copy of `t` on the other side of an offload: an allocation of `arena`, or `t` itself without offload.
  Tensor twin(Arena& arena, const Tensor& t) const { return on_host() ? arena.alloc(t.dtype, t.shape) : t; }
  // Copies to such a twin.
  void push(Stream& stream, const Tensor& twin, const Tensor& t) const;
  // The values of `shard` on the device: copied to `room`, or where they are.
  Tensor pull(Stream& stream, const Tensor& room, const Tensor& shard) const;
  // The same for a collective on `gather`, after everything already queued on the fetcher.
  Tensor fetch(Stream& gather, const Tensor& room, const Tensor& shard);

  // A sum while `reduce` builds it on the device: kernels write to `values`, or add to them.
  struct Build {
    Tensor values;
    bool accumulate;
    Tensor sum;  // where the sum belongs
    bool add;    // it is added to what is there, by store()
  };
  Build begin(Stream& reduce, const Tensor& sum, bool accumulate);
  // A finished sum, on the device once more.
  Build reopen(Stream& reduce, const Tensor& sum);
  // Every Build ends here.
  void store(Stream& reduce, const Build& build);

 private:
  std::optional<CopyStreams> copies_;
  Tensor landing_;  // as long as the largest shard
  Tensor arrived_;  // on the host: what will be added to a sum there
  Event fetched_, built_, stored_, landing_free_;
};

}  // namespace flatshard
