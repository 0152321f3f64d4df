#pragma once
// Checks the invariants of every command line of `train`: exit code 0 and an empty error stream, or exit code
// 1 and one line in the error stream that begins with "train: "; no partial files in the run folder; and all
// files after a successful run. Shared by fuzz_train and the test that tries some commands.

#include <cstdint>
#include <string>

#include "tests/fuzz/odd_command.h"
#include "tests/workshop.h"

namespace flatshard::test {

// The number of commands by outcome.
struct CommandTally {
  int64_t commands = 0;
  int64_t answered = 0;  // --help, --print-config and --plan
  int64_t trained = 0;   // ran to the end
  int64_t stopped = 0;   // failed only after the run had printed its header
};

// A workshop that also has bad files. While an object exists, it is the current folder.
class OddWorkshop {
 public:
  explicit OddWorkshop(const std::string& folder);
  ~OddWorkshop();
  OddWorkshop(const OddWorkshop&) = delete;
  OddWorkshop& operator=(const OddWorkshop&) = delete;

  const std::string& toml() const { return toml_; }

  // Runs the command in this process, with little memory. Throws a std::logic_error that names a violated
  // invariant.
  void try_command(const OddCommand& command, CommandTally& tally) const;

 private:
  std::string before_, toml_;
};

}  // namespace flatshard::test
