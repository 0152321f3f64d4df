#pragma once
// Where the parameters of a unit lie in its flat buffer, and which part of it each rank owns. Pure
// arithmetic.
//
// Trainable and frozen parameters have a layout each. Decayed parameters come first, so that a shard meets at
// most two settings of the optimizer; inside a group the order is that of declaration. Every parameter begins
// at a multiple of kAlignment elements; the places do not depend on the number of ranks. The end is padded so
// that all shards have one length, a multiple of kShardMultiple: chunks of that length, counted from the
// start of the unit, are then never cut by a rank's border, whatever the number of ranks.

#include <cstdint>
#include <vector>

#include "runtime/param.h"

namespace flatshard {

enum class Segment { trainable, frozen };

class FlatLayout {
 public:
  static constexpr int64_t kAlignment = 128;
  static constexpr int64_t kShardMultiple = 4096;

  struct Extent {
    ParamId param;
    int64_t begin, size;  // in the flat buffer
  };
  // What a rank owns of a parameter: `size` elements from `param_offset` on, at `shard_offset` of its shard.
  struct Piece {
    ParamId param;
    int64_t param_offset, shard_offset, size;
  };

  FlatLayout() = default;
  // A shard for each of `ranks` ranks. Where the shards have replicas, it divides among these as well.
  FlatLayout(const ParamList& params, Segment segment, int ranks, int replicas = 1);

  bool empty() const { return extents_.empty(); }
  int64_t size() const { return shard_size_ * ranks_; }  // padding included
  int64_t shard_size() const { return shard_size_; }
  const std::vector<Extent>& extents() const { return extents_; }
  std::vector<Piece> pieces(int rank) const;
  // How many leading elements of a rank's shard belong to decayed parameters (or to the padding among them).
  int64_t decayed_in_shard(int rank) const;

 private:
  std::vector<Extent> extents_;
  int64_t decay_end_ = 0, shard_size_ = 0;
  int ranks_ = 1;
};

}  // namespace flatshard
