#pragma once
// Command lines of `train` that nobody would write, for a workshop's config and files: known and unknown
// options, overrides with odd values, arguments missing or repeated, configs done something to. They are
// bounded in what a correct program does with them: few steps of a tiny model, and a run folder below the
// current one. A command is a function of (seed, number).

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard::test {

struct OddCommand {
  std::string toml;                    // what config.toml is to hold
  std::vector<std::string> arguments;  // behind the program's name
  std::string run_dir;                 // where a run, should it come to one, leaves its files
};

// `toml` is the workshop's own config.
OddCommand odd_command(uint64_t seed, int64_t number, const std::string& toml);

}  // namespace flatshard::test
