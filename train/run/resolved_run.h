#pragma once
// From the arguments to a run, in two calls: read_config() collects what files, environment and command line
// say, and resolve() completes it and sets it up, once. Plans, the preparation of data, and training follow;
// none of them changes the setup.

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/config/config.h"
#include "train/setup/run_setup.h"

namespace flatshard {

struct ConfigSource {
  std::string path;
  std::vector<std::string> overrides;
  std::string accelerate{};  // configuration file of accelerate; empty: none
  std::string shape{};       // published shape to plan for (published_shapes.h); empty: the config's
  int ranks = 0;             // number of ranks to plan for; 0: the world's
  bool trains = true;        // whether it trains; otherwise neither data nor a GPU is needed
};

// A config as read from its files, the environment and the command line.
struct ReadConfig {
  ConfigSource source;
  LoadedConfig loaded{};
  std::optional<int> processes{};  // number of ranks that a file of accelerate demands
  Problems problems{};             // problems of the command line, then of the config
};
ReadConfig read_config(const ConfigSource& source, Problems problems = {});

struct ResolvedRun {
  LoadedConfig loaded;  // the config that was read, with the keys of published weights
  RunSetup setup;       // what follows from it
};

// Adds the keys of published weights, and sets the run up. Checks everything that can be checked before
// anything is written or computed, so that a user learns of every mistake at once, and before the data is
// prepared: throws all problems together. Each begins with the lines of the file and the arguments that set
// the keys it mentions. A problem that only follows from a refused key is left out. Call on all ranks.
ResolvedRun resolve(ReadConfig read, World& world);

// Throws on every rank unless all ranks run the same executable file with the same config and the same task
// ("train", "plan").
void agree_on_config(World& world, Config& config, const std::string& task);

// Prints the config with the values that the run would use, and the source of each, on rank 0.
void print_config(const ResolvedRun& run, World& world, std::ostream& out);

}  // namespace flatshard
