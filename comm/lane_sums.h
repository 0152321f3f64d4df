#pragma once
// The gradients of one unit, from the backward passes of lanes to this rank's shard of their sum.
//
// Exact reduction. The lanes of the global batch are summed in one fixed binary tree, in fp32, no matter
// which rank computed them. lane_of (lanes.h) assigns lanes such that every partial sum is a subtree: the
// lanes of a micro-step on this rank; the ranks of the group (an all-to-all and a local sum); the lanes of
// later micro-steps, combined like the digits of a binary counter; the groups. With unsharded sums,
// micro-steps come before ranks. The bits are the same for every policy, number of ranks and number of
// micro-steps, provided that all are powers of two. A lane of several micro-steps is a sum in place and takes
// no buffer of its own where the backward pass writes straight into a sum; elsewhere it keeps a unit's
// gradients unsharded.
//
// Every function enqueues work on the stream that is passed in. sharded_unit.cpp makes the streams wait for
// each other.

#include <vector>

#include "comm/flat_layout.h"
#include "comm/shard_placement.h"
#include "comm/slots.h"
#include "runtime/param.h"

namespace flatshard {

struct Communicators;
struct UnitResources;

class LaneSums {
 public:
  // `params` and `shared` must outlive it. The layout is that of the trainable parameters.
  LaneSums(const ParamList& params, const FlatLayout& layout, const UnitRole& role, UnitResources& shared);

  // Whether the backward pass writes straight into the sums (writes_sums_directly()).
  bool direct() const { return direct_; }
  // Micro-steps end in ascending order; role.in_flight of them may have begun. Each has a slot for its lanes
  // unless sums are written directly: null until a backward pass has reached the unit.
  GradientSlots::Slot*& slot(int64_t micro) { return open(micro).slot; }
  GradientSlots::Slot& next_slot() { return gradient_slots_.next(role_); }

  // The gradients of a lane, by parameter, ready to be written.
  std::vector<Gradient>& lane(Stream& compute, int lane, int64_t micro);
  // Called for each layer of a backward pass: whether it is the last one that works with the unit, and no
  // later micro-step adds to the same lanes.
  bool completes_lanes(int64_t micro);
  // Zeroes gradients that nothing has written.
  void finish_lanes(Stream& compute, int64_t micro);
  // The lanes of a micro-step become the next sum, which the group exchanges unless sums are unsharded.
  void add_up_lanes(Stream& reduce, int64_t micro);
  // Adds up sums of equally many lanes; after the last micro-step, all sums.
  void carry(Stream& stream, int64_t micro);
  // After the last micro-step: reduces unsharded sums to the ranks that own their shards, then sums over
  // groups.
  void finish(Stream& reduce);
  // On a planning stream: the exchanges at the end of a step whose last micro-steps are not planned.
  void plan_last_exchange(Stream& reduce);

  // Zeroes the padding of sums that are written directly, which stays zero.
  void clear_padding(Stream& compute) const;
  // This rank's shard of the sum over everything.
  const Tensor& shard() const { return reduced_sum_; }

 private:
  struct Lane {
    std::vector<Gradient> gradients{};  // by parameter
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
  // Whether a micro-step is added to the one sum of those before; in an exact reduction it gets its own.
  bool adds_in_turn() const { return !exact() && sum_count_ > 0; }
  const Tensor& next_sum() const { return sums_[exact() ? static_cast<size_t>(sum_count_) : 0]; }
  void add_up(Stream& reduce, const Open& of);
  void sum_over_group(Stream& reduce, const Tensor& sum, const Tensor& mine, bool accumulate);
  void sum_over_replicas(Stream& reduce, const Tensor& sum);
  int group_size() const;

  const ParamList& params_;
  FlatLayout layout_;
  UnitRole role_;
  const char* name_;  // the label of its collectives
  const Communicators& comms_;
  const UnitOptions& options_;
  GradientSlots& gradient_slots_;
  ShardPlacement& shards_;
  bool unsharded_, direct_;
  std::vector<Tensor> sums_;  // over 1, 2, 4 ... lanes, as in a binary counter
  Tensor reduced_sum_;        // this rank's shard of the sum over everything
  std::vector<Open> open_;    // micro-steps, by their number modulo those in flight
  int64_t sum_count_ = 0;     // sums_ in use
};

// In tests: fills a released buffer, which must not be read any more.
void fill_with_nan(Stream& stream, const Tensor& t);

}  // namespace flatshard
