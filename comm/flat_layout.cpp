#include "comm/flat_layout.h"

#include <algorithm>

#include "runtime/check.h"

namespace flatshard {
namespace {

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

FlatLayout::FlatLayout(const ParamList& params, Segment segment, int ranks, int replicas) : ranks_(ranks) {
  check(ranks >= 1, "a flat layout for ", ranks, " ranks, must be for at least 1");
  const bool trainable = segment == Segment::trainable;
  int64_t end = 0;
  for (const bool decay : {true, false}) {
    for (int i = 0; i < static_cast<int>(params.specs().size()); ++i) {
      const ParamSpec& spec = params[ParamId{i}];
      const auto is_here = [&](const ParamSpec& s) { return s.trainable == trainable && s.decay == decay; };
      if (!is_here(spec)) continue;
      check(
          !spec.joined || (i > 0 && is_here(params[ParamId{i - 1}])), spec.name,
          " is one matrix with the parameter before it: both must be trained or frozen, and both decayed or "
          "not");
      const int64_t begin = spec.joined ? extents_.back().begin + extents_.back().size : end;
      extents_.push_back({{i}, begin, spec.shape.size()});
      end = round_up(begin + spec.shape.size(), kAlignment);
    }
    if (decay) decay_end_ = end;
  }
  shard_size_ = round_up(end, ranks * replicas * kShardMultiple) / ranks;
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

}  // namespace flatshard
