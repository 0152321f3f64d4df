#pragma once
// A folder with pairs and rollouts that tests train on, and a config that makes the same steps as TRL did
// with them (tests/golden/preferences.py).

#include <string>
#include <vector>

#include "runtime/json.h"
#include "tests/process.h"

namespace flatshard::test {

// Reads a file of tests/golden/preferences.
nlohmann::json golden_preferences(const std::string& name);

class Lessons {
 public:
  // Creates the folder with config.toml, pairs.tok, short_prompts.tok, labels.tok and rollouts.tok.
  explicit Lessons(const std::string& folder);

  // Runs "train config.toml OPTIONS" in the folder. A run that does not resume replaces earlier results.
  Finished train(int ranks, const std::string& options) const;
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

}  // namespace flatshard::test
