#pragma once
// The layout of a unit's flat buffer: the offset of each parameter and the shard that each rank owns. Pure
// arithmetic.
//
// Trainable and frozen parameters have separate layouts. Decayed parameters come first, so that a shard spans
// at most two optimizer settings; within these groups, parameters keep their declaration order. Every
// parameter starts at a multiple of kAlignment elements, or at the end of the one that it is joined to, and
// its offset does not depend on the number of ranks. The buffer is padded so that all shards have the same
// size, a multiple of kShardMultiple. A chunk of kShardMultiple elements, counted from the start of the unit,
// therefore never crosses a shard boundary.

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
  // The part of a parameter in one shard: elements [param_offset, param_offset + size) of the parameter are
  // at `shard_offset` in the shard.
  struct Piece {
    ParamId param;
    int64_t param_offset, shard_offset, size;
  };

  FlatLayout() = default;
  // One shard for each of `ranks` ranks. A shard's size is also a multiple of the number of its replicas.
  FlatLayout(const ParamList& params, Segment segment, int ranks, int replicas = 1);

  bool empty() const { return extents_.empty(); }
  int64_t size() const { return shard_size_ * ranks_; }  // padding included
  int64_t shard_size() const { return shard_size_; }
  const std::vector<Extent>& extents() const { return extents_; }
  std::vector<Piece> pieces(int rank) const;
  // The number of leading elements of a rank's shard that belong to decayed parameters or their padding.
  int64_t decayed_in_shard(int rank) const;

 private:
  std::vector<Extent> extents_;
  int64_t decay_end_ = 0, shard_size_ = 0;
  int ranks_ = 1;
};

}  // namespace flatshard
