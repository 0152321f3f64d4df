#pragma once
// Checks everything in a config that can be checked before anything is read, written or computed, so that a
// user learns of every mistake at once, and before the data is prepared.

#include "train/config/config.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Adds the problems that set_up() finds, and, for a run, missing inputs. Each begins with the lines of the
// file and the arguments that set the keys it mentions. A problem that only follows from a refused key is not
// added.
void check_config(const LoadedConfig& loaded, int ranks, HostPlace place, Purpose purpose,
                  Problems& problems);

}  // namespace flatshard
