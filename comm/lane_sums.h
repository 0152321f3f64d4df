#pragma once
// The gradients of one unit, from the backward passes of lanes to this rank's shard of their sum.
//
// Exact reduction. The lanes of the global batch are summed in one fixed binary tree, in fp32, no matter
// which rank computed them. lane_of (lanes.h) assigns lanes such that every partial sum is a subtree. Sums
// are taken over the lanes of a micro-step on this rank, then over the ranks of the group (an all-to-all and
// a local sum), then over micro-steps, combined like the digits of a binary counter, and last over the
// groups. With unsharded sums, micro-steps come before ranks. The bits are the same for every policy, number
// of ranks and number of micro-steps, provided that all are powers of two. A lane of several micro-steps is
// summed in place. It takes no buffer of its own if the backward pass writes straight into a sum; otherwise
// it keeps a unit's gradients unsharded.
//
// Every function enqueues work on the stream that is passed in. sharded_unit.cpp makes the streams wait for
// each other.

#include <vector>

#include "comm/flat_layout.h"
#include "comm/unit_resources.h"
#include "runtime/param.h"

namespace flatshard {

class LaneSums {
 public:
  // `params` and `shared` must outlive the object. `layout` is the layout of the trainable parameters, or of
  // the part with which this rank works.
  LaneSums(const ParamList& params, const FlatLayout& layout, const UnitRole& role, UnitResources& shared);

  // Returns whether the backward pass writes straight into the sums (writes_sums_directly()).
  bool direct() const { return direct_; }
  // Micro-steps end in ascending order; role.in_flight of them may have begun. Each has a slot for its lanes
  // unless sums are written directly: null until a backward pass has reached the unit.
  GradientSlots::Slot*& slot(int64_t micro) { return open(micro).slot; }
  GradientSlots::Slot& next_slot() { return gradient_slots_.next(role_); }

  // The gradients of a lane, one for each parameter, ready to be written.
  std::vector<Gradient>& lane(Stream& compute, int lane, int64_t micro);
  // To be called for each layer of a backward pass that works with the unit. Returns whether it was the last
  // one and no later micro-step adds to the same lanes.
  bool completes_lanes(int64_t micro);
  // Zeroes gradients that nothing has written.
  void finish_lanes(Stream& compute, int64_t micro);
  // Makes the lanes of a micro-step the next sum, which the group exchanges unless sums are unsharded.
  void add_up_lanes(Stream& reduce, int64_t micro);
  // Adds up sums of equally many lanes; after the last micro-step, all sums.
  void carry(Stream& stream, int64_t micro);
  // After the last micro-step: reduces unsharded sums to the ranks that own their shards, then sums over
  // groups.
  void finish(Stream& reduce);
  // Plans the exchanges at the end of a step whose last micro-steps are not planned; only for planning
  // streams.
  void plan_last_exchange(Stream& reduce);

  // Zeroes the padding of sums that are written directly, which stays zero.
  void clear_padding(Stream& compute) const;
  // This rank's shard of the sum over everything.
  const Tensor& shard() const { return reduced_sum_; }

 private:
  struct Lane {
    std::vector<Gradient> gradients{};  // one for each parameter
    bool begun = false;
  };
  // A micro-step from its first lane() to its last layer.
  struct Open {
    GradientSlots::Slot* slot = nullptr;
    std::vector<Lane> lanes{};
    int layers_done = 0;
  };
  Open& open(int64_t micro) { return open_[static_cast<size_t>(micro) % open_.size()]; }

  Tensor flat_gradients(const Open& of, int lane) const;
  void zero_padding(Stream& compute, const Tensor& flat) const;
  void begin(Stream& compute, Lane& lane, const Tensor& flat) const;
  bool exact() const { return options_.reduction == Reduction::exact; }
  // Returns whether a micro-step is added to the sum of the previous ones; in an exact reduction it gets its
  // own sum.
  bool adds_in_turn() const { return !exact() && sum_count_ > 0; }
  const Tensor& next_sum() const { return sums_[exact() ? static_cast<size_t>(sum_count_) : 0]; }
  void add_up(Stream& reduce, const Open& of);
  void sum_over_group(Stream& reduce, const Tensor& sum, const Tensor& mine, bool accumulate);
  void sum_over_replicas(Stream& reduce, const Tensor& sum);
  int group_size() const { return group_.size(); }

  const ParamList& params_;
  FlatLayout layout_;
  UnitRole role_;
  const char* name_;  // label of the unit's collectives
  RankGroup group_, replicas_;
  const UnitOptions& options_;
  GradientSlots& gradient_slots_;
  ShardPlacement& shards_;
  bool unsharded_, direct_;
  int lanes_;                 // lanes of a micro-step, those of the expert group's other ranks included
  std::vector<Tensor> sums_;  // sums over 1, 2, 4 ... lanes, as in a binary counter
  Tensor reduced_sum_;        // this rank's shard of the sum over everything
  std::vector<Open> open_;    // open micro-steps, by their number modulo role_.in_flight
  int64_t sum_count_ = 0;     // number of sums_ in use
};

// Fills a released buffer, which must not be read any more, with NaN; for tests.
void fill_with_nan(Stream& stream, const Tensor& t);

}  // namespace flatshard
