#pragma once
// A training run from its config to its last line: sets up, plans and allocates memory, steps, evaluates, and
// keeps the run folder:
//   config.toml     the resolved config            metrics.jsonl   one object for each step
//   report.html     curves, for a browser          trace.json      with run.trace: what ran when
//   model/          the trained weights as a Hugging Face folder
//   step-N/         checkpoints, and latest, the name of the newest
// Nothing is written into the folder until all input has been checked. Checkpoints follow
// checkpoint.on_error, and a run that cannot write model/ has failed. The other files are for people: if one
// of them cannot be written, or the output is closed, the run warns and goes on. A run that succeeds is noted
// as the last one (models/last_run.h).

#include <iosfwd>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

// What every rank does for `train CONFIG`. Rank 0 writes to out; `terminal` says that a person watches.
void run_training(const LoadedConfig& loaded, World& world, std::ostream& out, bool terminal);

}  // namespace flatshard
