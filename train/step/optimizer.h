#pragma once
// The optimizer update: global gradient norm, clipping, and the update of every unit's shard by its optimizer
// (comm/optimizer_kinds.h). It never synchronizes with the host: the norm and the nonfinite flag are device
// tensors.

#include <functional>
#include <vector>

#include "comm/sharded_unit.h"
#include "train/config/config.h"

namespace flatshard {

// The order in which the norm is summed: the units of the whole model, each with its stage and the length
// of its shards. The communicator has one rank of each stage.
struct NormOrder {
  struct Unit {
    int stage;
    int64_t shard_size;
  };
  Communicator& stages;
  std::vector<Unit> units;
};

class Optimizer {
 public:
  Optimizer(const OptimizerConfig& config, std::vector<ShardedUnit>& units, UnitResources& shared,
            NormOrder order);

  // Computes the norm over all ranks of the gradients divided by `loss_scale`, and the clip coefficient.
  void measure(Stream& stream, double loss_scale);
  // Makes update number `step`, counted from 1, unit by unit, and hands each unit to `updated`. Changes
  // nothing if the gradients are not finite.
  void update(Stream& stream, double lr, int64_t step, const std::function<void(ShardedUnit& unit)>& updated);

  const Tensor& norm() const { return norm_; }            // (1) f32
  const Tensor& nonfinite() const { return nonfinite_; }  // (1) i32

 private:
  int64_t sums_of(const NormOrder::Unit& unit) const;
  void gather_stages(Stream& stream);
  void update_unit(Stream& stream, const ShardedUnit& unit, double lr, int64_t step);

  const OptimizerConfig& config_;
  std::vector<ShardedUnit>& units_;
  RankGroup group_;
  ShardPlacement& shards_;
  StatePages& pages_;
  NormOrder order_;
  std::vector<int64_t> intervals_;  // number of intervals of each unit on a rank
  Tensor by_rank_;                  // partial sums of squares: (rank, unit, interval)
  Tensor own_sums_;                 // sums of several of these partial sums each
  Tensor by_stage_;                 // own_sums_ of each of several stages, padded to one length
  Tensor sums_;                     // sums of the whole model, in the order of its units
  Tensor norm_, coefficient_, nonfinite_;
  Tensor mine_;  // this rank's part of by_rank_
  Tensor coefficient_beside_shards_, nonfinite_beside_shards_, mine_beside_shards_;
};

}  // namespace flatshard
