#pragma once
// The algorithms of the matrix products of a run on GPUs: the heuristics of cuBLASLt, which choose the same
// ones every time, or those of the file run.tuned_products.

#include <string>

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Selects them on all ranks alike, once the run is planned and before its memory is allocated: rank 0 times
// the planned products that the file lacks, and writes it. Returns what it has selected, for people; "" on
// the CPU.
std::string choose_products(const RunSetup& setup, World& world);

}  // namespace flatshard
