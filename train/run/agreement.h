#pragma once
// What all ranks of a training run must agree on before they start.

#include <optional>
#include <string>

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Throws on every rank unless all ranks run the same executable file with the same config and the same task
// ("train", "plan").
void agree_on_config(World& world, Config& config, const std::string& task);

// The fingerprints (runtime/fingerprint.h) of the input files.
struct RunInputs {
  std::string train;
  std::optional<std::string> eval;  // if data.eval is set
  std::optional<std::string> base;  // of the frozen weights under adapters, where this rank reads them
};
// Throws on every rank unless all ranks have the same token files and, if every rank reads them, the same
// initial weights. Must precede everything that depends on the inputs, such as the number of steps.
RunInputs agree_on_inputs(World& world, const RunSetup& setup);

}  // namespace flatshard
