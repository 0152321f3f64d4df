#pragma once
// The layout of a unit's flat buffer: the offset of each parameter and the shard that each rank owns. Pure
// arithmetic.
//
// Trainable and frozen parameters have separate layouts. A layout of trainable parameters counts elements, as
// all their masters, moments and gradients have one dtype; a layout of frozen parameters counts bytes, as
// each may have its own dtype. Decayed parameters come first, so that a shard spans at most two optimizer
// settings; within these groups, parameters keep their declaration order. Every parameter starts at a
// multiple of kAlignment, or at the end of the parameter that it is joined to, and its offset does not depend
// on the number of ranks. The buffer is padded so that all shards have the same size, a multiple of
// kShardMultiple. A run of kShardMultiple elements or bytes, counted from the start of the unit, therefore
// never crosses a shard boundary.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/param.h"

namespace flatshard {

class FlatLayout {
 public:
  static constexpr int64_t kAlignment = 256;
  static constexpr int64_t kShardMultiple = 4096;

  struct Extent {
    ParamId param;
    int64_t begin, size;  // range in the flat buffer
  };
  // The part of a parameter in one shard: it begins at param_offset in the parameter, and at shard_offset in
  // the shard.
  struct Piece {
    ParamId param;
    int64_t param_offset, shard_offset, size;
  };
  // The elements of a parameter in a buffer; the first of them is element `first` of the parameter.
  struct Values {
    ParamId param;
    int64_t first;
    Tensor tensor;
  };

  FlatLayout() = default;
  // A layout with one shard for each of `ranks` ranks. A shard's size is also a multiple of the number of its
  // replicas.
  static FlatLayout trainable(const ParamList& params, int ranks, int replicas = 1);
  static FlatLayout frozen(const ParamList& params, DType compute, int ranks, int replicas = 1);

  // The layout of part `index` of `count` equal parts, which has an equal part of the shards. An Error if a
  // parameter is in several parts.
  FlatLayout part(int index, int count) const;

  bool empty() const { return extents_.empty(); }
  int64_t size() const { return shard_size_ * ranks_; }  // includes the padding
  int64_t shard_size() const { return shard_size_; }
  const std::vector<Extent>& extents() const { return extents_; }
  std::vector<Piece> pieces(int rank) const;
  // The number of leading elements of a rank's shard that belong to decayed parameters or their padding.
  int64_t decayed_in_shard(int rank) const;
  // The parameters in a buffer of the whole layout, or in a rank's shard. Frozen parameters have their own
  // dtype, trainable parameters the dtype of the buffer.
  std::vector<Values> values(const Tensor& flat) const;
  std::vector<Values> values_in_shard(int rank, const Tensor& shard) const;

 private:
  FlatLayout(const ParamList& params, std::optional<DType> frozen_as, int ranks, int replicas);
  Values values_at(const Piece& piece, const Tensor& buffer) const;

  std::vector<Extent> extents_;
  std::vector<DType> dtypes_;  // for a frozen layout: dtype of each parameter, by id; otherwise empty
  int64_t decay_end_ = 0, shard_size_ = 0;
  int ranks_ = 1;
};

}  // namespace flatshard
