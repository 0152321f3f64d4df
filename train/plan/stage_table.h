#pragma once
// The pipeline stages of a run as a table.

#include <string>

#include "train/setup/run_setup.h"

namespace flatshard {

// One line per stage: its blocks and parameters, the micro-batches in flight, the memory and the bytes that
// its first rank sends per step, and its share of the work; then the part of a step in which stages are idle,
// and the automatic maps that spread work or memory better. "" without stages. Plans a rank of every stage.
std::string describe_stages(const RunSetup& setup);

}  // namespace flatshard
