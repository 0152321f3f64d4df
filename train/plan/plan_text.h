#pragma once
// The plan of a run as text, for the run header and `train --plan`.

#include <string>
#include <vector>

#include "train/measure/bandwidth.h"
#include "train/step/training_runtime.h"

namespace flatshard {

// llama, 4 layers, hidden 128, ...
std::string describe_model(const ModelConfig& config);
// Model, parameter counts, batch and precision.
std::string describe_setup(const RunSetup& setup, const RunPlan& plan);
// A note on a device that might surprise the user; "" if there is nothing to say.
std::string device_note(const RunSetup& setup);
// FLOPs per token, with full and with causal attention; the FLOPs of images are not included.
std::string describe_flops(const FlopsPerToken& flops, const ModelConfig& model);
// A header, one line per row, the sum, and the warning if there is one. `stages` is the number of pipeline
// stages of the run; the table has the units of the first.
std::string describe_units(const UnitTable& table, int stages);
std::string describe_memory(const std::vector<MemoryRow>& rows);
// The same for a plan, with the memory that NCCL takes beside it.
std::string describe_memory(const RunPlan& plan);
// The same on one line: the sum, and the largest parts.
std::string summarize_memory(std::vector<MemoryRow> rows);
// The time of a micro-step's communication, and the tokens that hide it; "" with one rank. `peak` is the sum
// of the ranks' matrix peaks.
std::string describe_exchange(const RunSetup& setup, const UnitTable& units, const FlopsPerToken& flops,
                              double peak, const Bandwidth& bandwidth);

}  // namespace flatshard
