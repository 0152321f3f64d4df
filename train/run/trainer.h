#pragma once
// A complete training run: setup, memory planning, steps, evaluations, checkpoints, and the run folder:
//   config.toml     the resolved config            metrics.jsonl   one object for each step
//   report.html     curves, for a browser          trace.json      with run.trace: what ran when
//   starts.jsonl    version, command and hosts of each start
//   tensorboard/    with log.tensorboard: event files
//   model/          the trained weights as a Hugging Face folder
//   step-N/         checkpoints, and latest, the name of the newest
//   run.log         what the run printed, and all details of its start
// The run reads plan.json there, if it was planned (plan/saved_plan.h).
// Nothing is written to the folder until all inputs have been checked. Failures to write checkpoints follow
// checkpoint.on_error, and a run that cannot write model/ fails. If another file or the output cannot be
// written, the run logs a warning and continues. A successful run is recorded as the last one
// (hub/last_run.h).

#include <iosfwd>
#include <string>

#include "comm/world.h"
#include "train/run/resolved_run.h"

namespace flatshard {

struct RunOutput {
  std::ostream& out;
  bool terminal = false;  // rewrite progress lines in place
  bool verbose = false;   // print the details that are otherwise only in run.log
  std::string command{};  // command that started the run
};

// Runs `train CONFIG`; all ranks call it. Rank 0 writes the output. Returns false if a signal stopped the run
// before its last step; a run that has stopped early is complete.
bool run_training(ResolvedRun run, World& world, const RunOutput& output);

}  // namespace flatshard
