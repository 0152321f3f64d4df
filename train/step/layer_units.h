#pragma once
// Maps layers to communication units: a request for a layer's parameters or gradients takes each of its units
// through its life cycle (comm/sharded_unit.h), however the wrapping assigns parameters to units.

#include <optional>
#include <vector>

#include "comm/sharded_unit.h"
#include "train/setup/wrapping.h"

namespace flatshard {

inline constexpr int kNoLayer = -1;

class LayerUnits {
 public:
  LayerUnits(Wrapping wrapping, Communicators comms, const UnitOptions& options, UnitArenas arenas,
             std::optional<CopyStreams> copies);
  LayerUnits(const LayerUnits&) = delete;
  LayerUnits& operator=(const LayerUnits&) = delete;

  void prefetch(int layer, Stream& gather);
  ParamView acquire(int layer, Stream& compute);
  // Releases the layer's units, except units that layer `next` uses; kNoLayer at the end of a pass.
  void release(int layer, int next, Stream& compute);
  GradView grads(int layer, Stream& compute, int lane, int64_t micro);
  // The gradients of the layer's experts for the same lane of another rank, at this place in the expert
  // group.
  GradView grads_of_peer(int layer, Stream& compute, int place, int lane, int64_t micro);
  void reduce(int layer, Stream& compute, Stream& reduce, int64_t micro);

  std::vector<ShardedUnit>& all() { return units_; }
  const std::vector<ShardedUnit>& all() const { return units_; }
  const Wrapping& wrapping() const { return wrapping_; }
  // Resources shared by all units.
  UnitResources& shared() { return shared_; }

 private:
  ShardedUnit& unit(int index) { return units_[static_cast<size_t>(index)]; }
  // The number of a lane among those for which a unit has gradients.
  int lane_in(const ShardedUnit& unit, int place, int lane) const {
    return unit.role().parts == 1 ? lane : place * shared_.options.lanes + lane;
  }

  Wrapping wrapping_;
  UnitResources shared_;
  std::vector<ShardedUnit> units_;
  std::vector<Tensor> values_;  // values of the last requested layer; gradients_ likewise
  std::vector<Gradient*> gradients_, gradients_of_peer_;
  Gradient no_gradient_;  // of a parameter outside the experts, in gradients_of_peer_
};

}  // namespace flatshard
