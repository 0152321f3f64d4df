#pragma once
// What a run says of itself before it begins.

#include <string>

#include "train/step/engine.h"
#include "train/step/flops.h"

namespace flatshard {

// Model, parameters, batch arithmetic, precision: what follows from the config alone.
std::string describe_setup(const RunSetup& setup, const Model& model);
// Operations per token in both conventions.
std::string describe_flops(const FlopsPerToken& flops);

// 12,345,678
std::string with_commas(int64_t n);
// llama, 4 layers, hidden 128, ...
std::string describe_model(const ModelConfig& config);

}  // namespace flatshard
