#pragma once
// The plan of a run as text, for the run header and `train --plan`.

#include <string>
#include <vector>

#include "train/step/bandwidth.h"
#include "train/step/training_runtime.h"

namespace flatshard {

// llama, 4 layers, hidden 128, ...
std::string describe_model(const ModelConfig& config);
// Model, parameters, batch arithmetic and precision.
std::string describe_setup(const RunSetup& setup, const RunPlan& plan);
// Operations per token in both conventions.
std::string describe_flops(const FlopsPerToken& flops);
// A header, one line per row, the sum, and the warning if there is one.
std::string describe_units(const UnitTable& table);
std::string describe_memory(const std::vector<MemoryRow>& rows);
// How long a micro-step's exchange takes, and how many tokens hide it; "" with one rank. `peak` is the matrix
// peak of all ranks together.
std::string describe_exchange(const RunSetup& setup, const UnitTable& units, const FlopsPerToken& flops,
                              double peak, const Bandwidth& bandwidth);

}  // namespace flatshard
