#pragma once
// The choice of kernels for a run on GPUs: kernels of attention by run.attention, kernels of matrix products
// by the heuristics of cuBLASLt, which choose the same algorithms every time, or the file run.tuned_products.

#include <string>

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Selects the kernels of matrix products on all ranks alike, once the run is planned and before its memory is
// allocated: rank 0 times the planned products that the file lacks, and writes it. Returns a description of
// the selection; "" on the CPU.
std::string choose_products(const RunSetup& setup, World& world);

// Selects the kernels of attention as run.attention says; before a run is planned, since their scratch
// differs. It needs no GPU.
void choose_attention(const RunSetup& setup);
// Returns a description of the selected kernels; "" on the CPU. Refuses kernels that the GPU cannot run.
std::string describe_attention(const RunSetup& setup);

}  // namespace flatshard
