#pragma once
// The machines of a run with their current rates.

#include <optional>

#include "comm/world.h"
#include "planner/machines/cluster.h"
#include "train/measure/bandwidth.h"
#include "train/run/matrix_peak.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Measures the rates that are not known already: on a CPU copies, reduce-scatters and ops, in about a second;
// on a GPU with offload the host's updates. Collective. Returns nothing on a GPU whose published figures are
// not known, and on the CPU for a model that reads images.
std::optional<Cluster> measured_machines(const RunSetup& setup, World& world, const MatrixPeak& peak,
                                         const Bandwidth& bandwidth);

}  // namespace flatshard
