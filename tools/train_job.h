#pragma once
// The ranks of a command line of train that starts them itself, with --ranks or --launch.

#include <iosfwd>
#include <string>

#include "tools/programs.h"
#include "train/config/config.h"

namespace flatshard {

// What the options say: --launch, or --ranks with --hosts and --restarts.
struct TrainJob {
  std::string launch, hosts;
  int ranks = 0;
  int restarts = 0;
};

// Runs a command line on several ranks to its end, and returns its exit code. Says on `err` why it starts
// again.
int run_train_job(const TrainJob& job, const Arguments& given, const Config& config, std::ostream& err);

// An argument as a shell takes it.
std::string quoted_for_shell(const std::string& argument);

}  // namespace flatshard
