#pragma once
// The config that a run starts with.

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

struct ConfigSource {
  std::string path;
  std::vector<std::string> overrides;
  std::string accelerate;  // configuration file of accelerate; empty: none
  std::string shape{};     // published shape to plan for (published_shapes.h); empty: the config's
  int ranks = 0;           // number of ranks to plan for; 0: the world's
  bool trains = true;      // whether it trains; otherwise neither data nor a GPU is needed
};

// A config as read from its files, the environment and the command line.
struct ReadConfig {
  ConfigSource source;
  LoadedConfig loaded{};
  std::optional<int> processes{};  // number of ranks that a file of accelerate demands
  Problems problems{};             // problems of the command line, then of the config
};
ReadConfig read_config(const ConfigSource& source, Problems problems);

// Adds the keys of published weights, and checks the config for this world. Throws all problems at once.
LoadedConfig load_checked(ReadConfig read, World& world);

// Throws on every rank unless all ranks run the same executable file with the same config and the same task
// ("train", "plan").
void agree_on_config(World& world, Config& config, const std::string& task);

// Prints the config with the values that the run would use, and the source of each, on rank 0.
void print_config(const LoadedConfig& loaded, World& world, std::ostream& out);

}  // namespace flatshard
