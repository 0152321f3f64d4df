#include "train/step/layer_units.h"

#include <algorithm>
#include <utility>

namespace flatshard {

LayerUnits::LayerUnits(Wrapping wrapping, Communicators comms, const UnitOptions& options, UnitArenas arenas,
                       std::optional<CopyStreams> copies)
    : wrapping_(std::move(wrapping)),
      shared_(wrapping_.units(), wrapping_.roles(), comms, options, arenas, copies) {
  for (const UnitRole& role : wrapping_.roles())
    units_.emplace_back(wrapping_.units()[static_cast<size_t>(role.index)], role, shared_);
}

void LayerUnits::prefetch(int layer, Stream& gather) {
  for (const int index : wrapping_.units_of(layer)) unit(index).prefetch(gather);
}

ParamView LayerUnits::acquire(int layer, Stream& compute) {
  for (const int index : wrapping_.units_of(layer)) unit(index).acquire(compute);
  values_.clear();
  for (const Wrapping::Place& place : wrapping_.places(layer))
    values_.push_back(unit(place.unit).values()[static_cast<size_t>(place.id.index)]);
  return ParamView(values_);
}

void LayerUnits::release(int layer, int next, Stream& compute) {
  for (const int index : wrapping_.units_of(layer))
    if (next == kNoLayer || !wrapping_.uses(next, index)) unit(index).release(compute);
}

GradView LayerUnits::grads(int layer, Stream& compute, int lane, int64_t micro) {
  const int here = shared_.comms.gather.inside().rank();
  for (const int index : wrapping_.units_of(layer))
    unit(index).grads(compute, lane_in(unit(index), here, lane), micro);
  gradients_.clear();
  for (const Wrapping::Place& place : wrapping_.places(layer))
    gradients_.push_back(&unit(place.unit).gradients()[static_cast<size_t>(place.id.index)]);
  return GradView(gradients_);
}

GradView LayerUnits::grads_of_peer(int layer, Stream& compute, int place, int lane, int64_t micro) {
  for (const int index : wrapping_.units_of(layer))
    if (unit(index).role().parts > 1) unit(index).grads(compute, lane_in(unit(index), place, lane), micro);
  gradients_of_peer_.clear();
  for (const Wrapping::Place& at : wrapping_.places(layer))
    gradients_of_peer_.push_back(unit(at.unit).role().parts > 1
                                     ? &unit(at.unit).gradients()[static_cast<size_t>(at.id.index)]
                                     : &no_gradient_);
  return GradView(gradients_of_peer_);
}

void LayerUnits::reduce(int layer, Stream& compute, Stream& reduce, int64_t micro) {
  // A backward pass completes the units of a layer in reverse order.
  const std::vector<int>& units = wrapping_.units_of(layer);
  std::for_each(units.rbegin(), units.rend(), [&](int index) { unit(index).reduce(compute, reduce, micro); });
}

}  // namespace flatshard
