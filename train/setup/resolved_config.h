#pragma once
// A config in which every value is the one that a run uses, instead of "auto", or 0 for a default.

#include "train/setup/run_setup.h"

namespace flatshard {

// The result means the same run on the setup's number of ranks, with `threads` per rank. Values that only
// data or a measurement decides stay open: data.vocab = 0, data.chat_template = "", parallel.bandwidth_gbps =
// 0.
Config resolved_config(const RunSetup& setup, int threads);

}  // namespace flatshard
