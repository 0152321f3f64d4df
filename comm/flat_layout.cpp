#include "comm/flat_layout.h"

#include <algorithm>

#include "runtime/check.h"

namespace flatshard {
namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

FlatLayout FlatLayout::trainable(const ParamList& params, int ranks, int replicas) {
  return {params, std::nullopt, ranks, replicas};
}

FlatLayout FlatLayout::frozen(const ParamList& params, DType compute, int ranks, int replicas) {
  return {params, compute, ranks, replicas};
}

FlatLayout::FlatLayout(const ParamList& params, std::optional<DType> frozen_as, int ranks, int replicas)
    : ranks_(ranks) {
  check(ranks >= 1, "a flat layout for ", ranks, " ranks, must be for at least 1");
  const bool trains = !frozen_as;
  for (const ParamSpec& spec : params.specs()) {
    check(!spec.dtype || !spec.trainable, spec.name, " has a dtype of its own, must be frozen");
    if (frozen_as) dtypes_.push_back(spec.dtype.value_or(*frozen_as));
  }
  int64_t end = 0;
  for (const bool decay : {true, false}) {
    for (int i = 0; i < static_cast<int>(params.specs().size()); ++i) {
      const ParamSpec& spec = params[ParamId{i}];
      const auto is_here = [&](const ParamSpec& s) { return s.trainable == trains && s.decay == decay; };
      if (!is_here(spec)) continue;
      check(
          !spec.joined || (i > 0 && is_here(params[ParamId{i - 1}])), spec.name,
          " is one matrix with the parameter before it: both must be trained or frozen, and both decayed or "
          "not");
      const int64_t begin = spec.joined ? extents_.back().begin + extents_.back().size : end;
      const int64_t width = trains ? 1 : size_of(dtypes_[static_cast<size_t>(i)]);
      extents_.push_back({{i}, begin, spec.shape.size() * width});
      end = round_up(begin + extents_.back().size, kAlignment);
    }
    if (decay) decay_end_ = end;
  }
  shard_size_ = round_up(end, ranks * replicas * kShardMultiple) / ranks;
}

FlatLayout FlatLayout::part(int index, int count) const {
  if (count == 1 || empty()) return *this;
  check(ranks_ % count == 0, "a layout of ", ranks_, " shards does not divide into ", count, " parts");
  FlatLayout part = *this;
  part.ranks_ = ranks_ / count;
  const int64_t begin = index * part.size(), end = begin + part.size();
  part.decay_end_ = std::clamp<int64_t>(decay_end_ - begin, 0, part.size());
  part.extents_.clear();
  for (const Extent& extent : extents_) {
    const int64_t extent_end = extent.begin + extent.size;
    if (extent_end <= begin || extent.begin >= end) continue;
    check(begin <= extent.begin && extent_end <= end, "a parameter of ", extent.size,
          " elements is not whole in one of ", count, " parts of ", part.size(), " elements");
    part.extents_.push_back({extent.param, extent.begin - begin, extent.size});
  }
  return part;
}

std::vector<FlatLayout::Piece> FlatLayout::pieces(int rank) const {
  const int64_t begin = rank * shard_size_, end = begin + shard_size_;
  std::vector<Piece> pieces;
  for (const Extent& extent : extents_) {
    const int64_t from = std::max(begin, extent.begin), to = std::min(end, extent.begin + extent.size);
    if (from < to) pieces.push_back({extent.param, from - extent.begin, from - begin, to - from});
  }
  return pieces;
}

int64_t FlatLayout::decayed_in_shard(int rank) const {
  return std::clamp<int64_t>(decay_end_ - rank * shard_size_, 0, shard_size_);
}

FlatLayout::Values FlatLayout::values_at(const Piece& piece, const Tensor& buffer) const {
  const Tensor part = buffer.slice(piece.shard_offset, piece.shard_offset + piece.size);
  if (dtypes_.empty()) return {piece.param, piece.param_offset, part};
  const DType dtype = dtypes_[static_cast<size_t>(piece.param.index)];
  const int64_t width = size_of(dtype);
  return {piece.param, piece.param_offset / width, {part.data, dtype, {piece.size / width}, part.device}};
}

std::vector<FlatLayout::Values> FlatLayout::values(const Tensor& flat) const {
  std::vector<Values> values;
  for (const Extent& extent : extents_)
    values.push_back(values_at({extent.param, 0, extent.begin, extent.size}, flat));
  return values;
}

std::vector<FlatLayout::Values> FlatLayout::values_in_shard(int rank, const Tensor& shard) const {
  std::vector<Values> values;
  for (const Piece& piece : pieces(rank)) values.push_back(values_at(piece, shard));
  return values;
}

}  // namespace flatshard
