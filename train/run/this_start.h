#pragma once
// The record of the start in progress for starts.jsonl.

#include <string>

#include "comm/world.h"
#include "train/report/start_records.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// `step` is the number of completed steps, `command` the command line of rank 0. Collective.
StartRecord this_start(const RunSetup& setup, World& world, int64_t step, const std::string& command);

}  // namespace flatshard
