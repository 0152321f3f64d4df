#pragma once
// The kernels of a run on GPUs where there is a choice: of attention, by run.attention; of matrix products,
// by the heuristics of cuBLASLt, which choose the same algorithms every time, or the file run.tuned_products.

#include <string>

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Selects them on all ranks alike, once the run is planned and before its memory is allocated: rank 0 times
// the planned products that the file lacks, and writes it. Returns what it has selected, for people; "" on
// the CPU.
std::string choose_products(const RunSetup& setup, World& world);

// The same for attention.
std::string choose_attention(const RunSetup& setup);

}  // namespace flatshard
