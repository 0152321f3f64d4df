#pragma once
// Maps stages to communication units: a request for a stage's parameters or gradients takes each of its units
// through its life cycle (comm/sharded_unit.h), however the wrapping assigns parameters to units.

#include <optional>
#include <vector>

#include "comm/sharded_unit.h"
#include "train/setup/wrapping.h"

namespace flatshard {

inline constexpr int kNoStage = -1;

class StageUnits {
 public:
  StageUnits(Wrapping wrapping, Communicators comms, const UnitOptions& options, UnitArenas arenas,
             std::optional<CopyStreams> copies);
  StageUnits(const StageUnits&) = delete;
  StageUnits& operator=(const StageUnits&) = delete;

  void prefetch(int stage, Stream& gather);
  ParamView acquire(int stage, Stream& compute);
  // Releases the stage's units except those that stage `next` uses; kNoStage at the end of a pass.
  void release(int stage, int next, Stream& compute);
  GradView grads(int stage, Stream& compute, int lane, int64_t micro);
  void reduce(int stage, Stream& compute, Stream& reduce, int64_t micro);

  std::vector<ShardedUnit>& all() { return units_; }
  const std::vector<ShardedUnit>& all() const { return units_; }
  const Wrapping& wrapping() const { return wrapping_; }
  // Resources shared by all units.
  UnitResources& shared() { return shared_; }

 private:
  ShardedUnit& unit(int index) { return units_[static_cast<size_t>(index)]; }

  Wrapping wrapping_;
  UnitResources shared_;
  std::vector<ShardedUnit> units_;
  std::vector<Tensor> values_;  // of the last requested stage, like
  std::vector<Gradient*> gradients_;
};

}  // namespace flatshard
