#pragma once
// The choice of kernels for a run. On GPUs: kernels of attention by run.attention, kernels of matrix products
// by run.products: the project's own, or those of cuBLASLt by its heuristics, which choose the same
// algorithms every time, or by the file run.tuned_products. On CPUs: the way to multiply bf16, by the
// processor (kernels/bf16_products.h).

#include <string>

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// How the run multiplies bf16 on this CPU, such as "in f32, from widened operands"; "" on a GPU, and if it
// multiplies no bf16.
std::string bf16_products_of(const RunSetup& setup);

// Prepares the kernels of matrix products on all ranks alike, once the run is planned and before its memory
// is allocated: rank 0 times the planned products that the file lacks, and writes it. CPUs that multiply bf16
// in different ways are an Error, and so is a GPU that lacks the selected kernel. Returns a description of
// the selection; "" on a CPU that multiplies no bf16.
std::string choose_products(const RunSetup& setup, World& world);

// Selects the kernels of attention and of products as run.attention and run.products say; before a run is
// planned, since their scratch and times differ. It needs no GPU.
void choose_kernels(const RunSetup& setup);
// Returns a description of the selected kernels; "" on the CPU. Refuses kernels that the GPU cannot run.
std::string describe_attention(const RunSetup& setup);

}  // namespace flatshard
