#pragma once
// The losses of a step and of an evaluation, over all ranks: sums in a fixed order, on any number of ranks.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/step/engine.h"

namespace flatshard {

struct GatheredLosses {
  double sum = 0;                          // in lane order, independent of which rank computed a lane
  std::vector<std::vector<double>> notes;  // by rank
};

// Exchanges the losses of a step. Call on all ranks, with the losses of this rank's lanes and as many notes
// as on the others.
GatheredLosses gather_losses(World& world, const RunSetup& setup, std::span<const double> losses,
                             std::span<const double> notes);

// The mean over all targets of the evaluation data, the same value on all ranks. Sequences are summed in
// order, so the result does not depend on the number of ranks or the batch size. After each batch every rank
// calls `interrupted`; if it returns true on any rank and batches remain, all ranks stop and the result is
// empty. An Error names `path` if the data has no targets.
std::optional<double> evaluation_loss(Engine& engine, const Data& data, const std::string& path, World& world,
                                      const std::function<bool()>& interrupted);

}  // namespace flatshard
