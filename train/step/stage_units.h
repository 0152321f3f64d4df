#pragma once
// The units of a run as its stages see them: a stage asks for its parameters, wherever the wrapping has put
// them, and each of its units goes through its life cycle (comm/sharded_unit.h).

#include <optional>
#include <vector>

#include "comm/sharded_unit.h"
#include "train/config/wrapping.h"

namespace flatshard {

inline constexpr int kNoStage = -1;

class StageUnits {
 public:
  StageUnits(const Model& model, const WrapOptions& wrap, Communicators comms, const UnitOptions& options,
             UnitArenas arenas, std::optional<CopyStreams> copies);
  StageUnits(const StageUnits&) = delete;
  StageUnits& operator=(const StageUnits&) = delete;

  void prefetch(int stage, Stream& gather);
  ParamView acquire(int stage, Stream& compute);
  // What stage `next` needs as well is kept for it; kNoStage where a pass ends.
  void release(int stage, int next, Stream& compute);
  GradView grads(int stage, Stream& compute, int lane);
  void reduce(int stage, Stream& compute, Stream& reduce, int64_t micro);

  std::vector<ShardedUnit>& all() { return units_; }
  const std::vector<ShardedUnit>& all() const { return units_; }
  const Wrapping& wrapping() const { return wrapping_; }
  // What all units work with.
  UnitResources& shared() { return shared_; }

 private:
  ShardedUnit& unit(int index) { return units_[static_cast<size_t>(index)]; }

  Wrapping wrapping_;
  UnitResources shared_;
  std::vector<ShardedUnit> units_;
  std::vector<Tensor> values_, gradients_;  // of the stage asked for last
};

}  // namespace flatshard
