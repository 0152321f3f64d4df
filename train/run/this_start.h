#pragma once
// What starts.jsonl records of the start in progress.

#include <string>

#include "comm/world.h"
#include "train/report/start_records.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// The run has completed so many steps. Collective; `command` is that of rank 0.
StartRecord this_start(const RunSetup& setup, World& world, int64_t step, const std::string& command);

}  // namespace flatshard
