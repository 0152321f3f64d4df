#pragma once
// A folder with a tiny config and corpus, on which tests run the programs. Training takes milliseconds.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/process.h"

namespace flatshard::test {

class Workshop {
 public:
  static constexpr int64_t kVocab = 53;

  // Creates the folder with config.toml and corpus.tok.
  explicit Workshop(const std::string& folder);

  // Runs "train config.toml OPTIONS" in the folder. A run that does not resume replaces earlier results.
  Finished train(int ranks, const std::string& options, int limit_seconds = 300) const;
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

}  // namespace flatshard::test
