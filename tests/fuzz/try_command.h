#pragma once
// What must hold for every command line of `train`, however odd: exit code 0 and nothing on the error stream,
// or exit code 1 and one line there that begins with "train: "; nothing half-written in the run folder; and
// a run that ends well leaves all its files. Shared by fuzz_train and by the test that tries some commands.

#include <cstdint>
#include <string>

#include "tests/fuzz/odd_command.h"
#include "tests/workshop.h"

namespace flatshard::test {

// How many commands came how far.
struct CommandTally {
  int64_t commands = 0;
  int64_t answered = 0;  // --help, --print-config and --plan
  int64_t trained = 0;   // to the end
  int64_t stopped = 0;   // refused only after the run had said how it begins
};

// A workshop with bad files as well. It is the current folder while one of these lives.
class OddWorkshop {
 public:
  explicit OddWorkshop(const std::string& folder);
  ~OddWorkshop();
  OddWorkshop(const OddWorkshop&) = delete;
  OddWorkshop& operator=(const OddWorkshop&) = delete;

  const std::string& toml() const { return toml_; }

  // Runs the command in this process, with little memory. Throws std::logic_error that says which promise is
  // broken.
  void try_command(const OddCommand& command, CommandTally& tally) const;

 private:
  std::string before_, toml_;
};

}  // namespace flatshard::test
