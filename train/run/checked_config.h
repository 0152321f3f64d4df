#pragma once
// The config that a run starts with.

#include <iosfwd>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

struct ConfigSource {
  std::string path;
  std::vector<std::string> overrides;
  std::string accelerate;  // configuration file of accelerate; empty: none
  int ranks = 0;           // to plan for; 0: those of the world
  bool trains = true;      // otherwise neither data nor a GPU is needed
};

// Loads a config with the keys of published weights, and checks it. Throws all problems at once: `problems`,
// then its own.
LoadedConfig load_checked(const ConfigSource& source, Problems problems, World& world);

// Prints the config with the values that the run would use, and where each comes from, on rank 0.
void print_config(const LoadedConfig& loaded, World& world, std::ostream& out);

}  // namespace flatshard
