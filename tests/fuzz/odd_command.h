#pragma once
// Odd command lines of `train` for the config and files of a workshop: known and unknown options, overrides
// with odd values, missing or repeated arguments, mutated configs. The work of a correct program is bounded:
// a few steps of a tiny model, and a run folder below the current one. A command is a function of (seed,
// number).

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard::test {

struct OddCommand {
  std::string toml;                    // the content of config.toml
  std::vector<std::string> arguments;  // arguments after the program's name
  std::string run_dir;                 // the run folder, if there is a run
};

// `toml` is the workshop's own config.
OddCommand odd_command(uint64_t seed, int64_t number, const std::string& toml);

}  // namespace flatshard::test
