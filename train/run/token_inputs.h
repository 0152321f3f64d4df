#pragma once
// A run trains on token files. Where its config names a file of text instead (is_text_name() of text_kind.h),
// the tokens are made first, and kept in a token file beside it for later runs.

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

// The config with token files for data.train and data.eval. One rank of each host makes missing
// files; the others wait, without a time limit. `terminal`, unless null, shows the progress.
Config with_token_files(Config config, World& world, std::ostream* terminal);

}  // namespace flatshard
