#pragma once
// Exchanges the losses of a step, and a few values of each rank with them.

#include <span>
#include <vector>

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

struct GatheredLosses {
  double sum = 0;                          // in lane order, independent of which rank computed a lane
  std::vector<std::vector<double>> notes;  // by rank
};

// Call on all ranks, with the losses of this rank's lanes and as many notes as on the others.
GatheredLosses gather_losses(World& world, const RunSetup& setup, std::span<const double> losses,
                             std::span<const double> notes);

}  // namespace flatshard
