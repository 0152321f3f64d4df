#pragma once
// The parameters of one communication unit during a run. fp32 masters and the optimizer's state are sharded
// over the ranks of a group; parameters in the compute dtype and gradients are sharded or unsharded,
// depending on the policy (shard_policy.h). A step calls
//
//   prefetch(gather)                starts gathering the parameters; does nothing if they are gathered
//   p = acquire(compute)            the parameters; compute waits until they have arrived
//   release(compute)                frees their slot, unless the unit stays gathered
//   g = grads(compute, lane, micro) the gradients of a lane, to be written by its backward pass; a unit of
//                                   experts in parts has lanes of other ranks (UnitRole::parts)
//   reduce(compute, reduce, micro)  sums the gradients over lanes and ranks, on `reduce`
//   wait_reduced(compute)           compute waits for the sums
//   publish(compute, gather)        says that the shard is new; sends it to all ranks, on `gather`, if each
//                                   of them keeps all values
//
// lane_sums.h describes the sums.
//
// sharded_unit.cpp contains every record and every wait of this life cycle, except for copies of shards to
// and from host memory (shard_placement.h).

#include <optional>
#include <vector>

#include "comm/lane_sums.h"
#include "comm/lanes.h"
#include "comm/unit_resources.h"
#include "kernels/init.h"
#include "runtime/mirror.h"
#include "runtime/param.h"

namespace flatshard {

class ShardedUnit {
 public:
  // `params` and `shared` must outlive the object.
  ShardedUnit(const ParamList& params, const UnitRole& role, UnitResources& shared);

  // Initializes masters, frozen parameters and the optimizer's state, and publishes.
  void initialize(Stream& compute, Stream& gather, const InitialValues& values);
  // These three replace initialize() if a checkpoint fills the shards on the host. clear_padding() zeroes the
  // padding between parameters, round_masters() casts the masters to this rank's shard of the values, and
  // publish_all() publishes them.
  void clear_padding(Stream& compute);
  void round_masters(Stream& compute);
  void publish_all(Stream& compute, Stream& gather);

  void prefetch(Stream& gather);
  ParamView acquire(Stream& compute);
  void release(Stream& compute);
  // Frees the slot of gathered parameters, even if the unit stays gathered or nothing has read them.
  void ungather(Stream& compute);
  // The gradients of a lane, one for each parameter. A gradient that nothing has written by the time of
  // reduce() is zero.
  std::vector<Gradient>& grads(Stream& compute, int lane, int64_t micro);
  // To be called once for each layer of a backward pass; the last call starts the reduction. Micro-steps end
  // in ascending order; role().in_flight of them may have begun.
  void reduce(Stream& compute, Stream& reduce, int64_t micro);
  // Plans the exchanges at the end of a step whose last micro-steps are not planned; only for planning
  // streams.
  void plan_last_exchange(Stream& reduce);
  void wait_reduced(Stream& compute);
  void publish(Stream& compute, Stream& gather);
  // Adds to a frozen parameter in fp32, on all ranks alike, while no values are gathered. The change is in
  // device and in host memory, since shards may be in either.
  void add_to_frozen(Stream& compute, ParamId param, const Mirror& change);

  // This rank's shard of every tensor that optimizer() uses. The copy is empty if the masters are the values.
  // Paged state is given in host memory.
  OptimizerShard shard() const;

  const ParamList& params() const { return *params_; }
  const UnitRole& role() const { return role_; }
  const FlatLayout& trainable() const { return trainable_; }
  const FlatLayout& frozen() const { return frozen_; }
  bool has_gradients() const { return !trainable_.empty(); }
  const OptimizerKind& optimizer() const { return optimizer_; }
  bool values_are_sharded() const { return sharded_values_; }
  // This rank's shard of the frozen values, in bytes: frozen().values_in_shard(shard_index(),
  // frozen_shard()).
  const Tensor& frozen_shard() const { return frozen_shard_; }
  // The unsharded masters in the layout of trainable(), for hashing between steps; valid until the next step.
  Tensor gather_masters(Stream& compute);
  // One tensor for each parameter, in the compute dtype; empty in other parts. Sharded values are valid only
  // between acquire and release.
  const std::vector<Tensor>& values() const { return values_; }
  // The gradients of the last requested lane.
  std::vector<Gradient>& gradients() { return has_gradients() ? *gradients_ : no_gradients_; }
  int shard_index() const { return comms_.gather.rank(); }  // index of this rank's shard in the group

 private:
  enum class State { sharded, gathering, gathered };

  void allocate_values(UnitArenas arenas);
  void allocate_state(UnitArenas arenas);
  void clear_state(Stream& compute);
  void make_initial_values(Stream& compute, const FlatLayout& layout, const Tensor& shard,
                           const InitialValues& values);
  bool stays() const { return !sharded_values_ || (role_.root && options_.keep_root); }
  void release_slot(Stream& compute);
  // The unsharded values are those of the part with which this rank works, and so are these.
  int group_size() const { return group_.size(); }
  Tensor own_shard(const Tensor& values) const { return part_of(values, group_.rank(), group_.size()); }
  // This rank's shard of the whole unit.
  Tensor shard_of(const Tensor& all) const { return part_of(all, shard_index(), comms_.gather.size()); }

  const ParamList* params_;
  const char* name_;  // label of the unit's collectives
  UnitRole role_;
  const Communicators& comms_;
  const UnitOptions& options_;
  GatherSlots& gather_slots_;
  GradientSlots& gradient_slots_;
  ShardPlacement& shards_;
  StatePages& pages_;
  FlatLayout trainable_, frozen_;
  RankGroup group_;            // the ranks that share the part with which this rank works
  FlatLayout trainable_part_;  // the layout of that part; nothing of it is frozen
  const OptimizerKind& optimizer_;
  bool sharded_values_;

  State state_ = State::sharded;
  ValueSlot* value_slot_ = nullptr;
  Tensor values_flat_, frozen_flat_;            // unsharded values; empty if parameters are sharded
  Tensor value_shard_, frozen_shard_;           // shards in the compute dtype, and as bytes
  Tensor master_;                               // this rank's shard of the masters
  OptimizerState optimizer_state_;              // state of the same shard
  std::optional<LaneSums> sums_;                // set only for a unit with trained parameters
  std::vector<Tensor> values_;                  // one for each parameter
  std::vector<Gradient> no_gradients_;          // gradients of a frozen unit
  std::vector<Gradient>* gradients_ = nullptr;  // gradients of the last requested lane

  Event ready_, reduced_, updated_, gathered_;
};

}  // namespace flatshard
