#pragma once
// The inputs of a run: token files, whose contents all ranks must agree on before anything depends on them,
// such as the number of steps. Where the config names a file of text instead (is_text_name() of text_kind.h),
// or a table (table_input.h), the tokens are made first, and kept in a token file beside it for later runs.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/shared_sums.h"
#include "comm/world.h"
#include "train/config/config.h"
#include "train/setup/run_data.h"

namespace flatshard {

// The date that the chat template of the config prints, if it prints one: data.date, or the date of the
// checkpoint that the run resumes from, or of the prepared tokens, or today's date on rank 0. All ranks, and
// the run when it resumes, then print the same date. Call on all ranks.
std::string date_of_run(const Config& config, World& world);

// The token files of data.train and data.eval, with the names of the config.
struct TokenPaths {
  DataFiles train, eval;
};
// One rank of each host makes missing files; the others wait, without a time limit. `terminal`, unless null,
// shows the progress.
TokenPaths make_token_files(const Config& config, World& world, SharedSums& sums, std::ostream* terminal);

// The fingerprints (runtime/fingerprint.h) of the files.
struct InputPrints {
  std::vector<std::string> train, eval;  // one fingerprint for each file
  std::optional<std::string> base;       // frozen weights under adapters, if this rank reads them
  // Today's fingerprint for each fingerprint that earlier versions recorded.
  std::map<std::string, std::string> earlier;
};

struct RunInputs {
  // Collective: throws on every rank unless all ranks have the same token files and, if every rank reads
  // them, the same initial weights.
  RunInputs(const RunSetup& setup, const TokenPaths& tokens, World& world, SharedSums& sums);

  InputPrints prints;
  RunData train;
  std::deque<RunData> eval;  // one for each file
};

}  // namespace flatshard
