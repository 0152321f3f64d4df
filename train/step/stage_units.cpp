#include "train/step/stage_units.h"

#include <algorithm>
#include <utility>

namespace flatshard {

StageUnits::StageUnits(Wrapping wrapping, Communicators comms, const UnitOptions& options, UnitArenas arenas,
                       std::optional<CopyStreams> copies)
    : wrapping_(std::move(wrapping)),
      shared_(wrapping_.units(), wrapping_.roles(), comms, options, arenas, copies) {
  for (const UnitRole& role : wrapping_.roles())
    units_.emplace_back(wrapping_.units()[static_cast<size_t>(role.index)], role, shared_);
}

void StageUnits::prefetch(int stage, Stream& gather) {
  for (const int index : wrapping_.units_of(stage)) unit(index).prefetch(gather);
}

ParamView StageUnits::acquire(int stage, Stream& compute) {
  for (const int index : wrapping_.units_of(stage)) unit(index).acquire(compute);
  values_.clear();
  for (const Wrapping::Place& place : wrapping_.places(stage))
    values_.push_back(unit(place.unit).values()[static_cast<size_t>(place.id.index)]);
  return ParamView(values_);
}

void StageUnits::release(int stage, int next, Stream& compute) {
  for (const int index : wrapping_.units_of(stage))
    if (next == kNoStage || !wrapping_.uses(next, index)) unit(index).release(compute);
}

GradView StageUnits::grads(int stage, Stream& compute, int lane, int64_t micro) {
  for (const int index : wrapping_.units_of(stage)) unit(index).grads(compute, lane, micro);
  gradients_.clear();
  for (const Wrapping::Place& place : wrapping_.places(stage))
    gradients_.push_back(&unit(place.unit).gradients()[static_cast<size_t>(place.id.index)]);
  return GradView(gradients_);
}

void StageUnits::reduce(int stage, Stream& compute, Stream& reduce, int64_t micro) {
  // A backward pass completes the units of a stage in reverse order.
  const std::vector<int>& units = wrapping_.units_of(stage);
  std::for_each(units.rbegin(), units.rend(), [&](int index) { unit(index).reduce(compute, reduce, micro); });
}

}  // namespace flatshard
