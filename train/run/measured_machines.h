#pragma once
// The machines of a run, with the rates that they have now.

#include <optional>

#include "comm/world.h"
#include "train/measure/bandwidth.h"
#include "train/run/matrix_peak.h"
#include "train/setup/run_setup.h"
#include "train/simulate/cluster.h"

namespace flatshard {

// Measures what is not known already: on a CPU ops, in about a second; on a GPU copies in the memory of
// the host where a run uses it. Collective. Nothing on a GPU whose published figures are not known, and on
// the CPU for a model that reads images.
std::optional<Cluster> measured_machines(const RunSetup& setup, World& world, const MatrixPeak& peak,
                                         const Bandwidth& bandwidth);

}  // namespace flatshard
