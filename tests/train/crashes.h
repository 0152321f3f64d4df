#pragma once
// Runs of the program train over a disk that kills them, or fails, at a chosen call (tests/disk_faults.cpp),
// and what they leave behind.

#include <map>
#include <string>

#include "tests/workshop.h"

namespace flatshard::test {

// What goes wrong, and where.
struct Fault {
  std::string what;  // kill, fail, full
  int ranks = 1, on_rank = 0;
  std::string options{};  // of the run
};

class Crashes {
 public:
  // Makes a folder "good" in this one, with a run's checkpoint of step 2. From it runs go on to step 6 over a
  // disk with faults and save at 4, while they go on, and at 6; of older checkpoints they remove one.
  explicit Crashes(const std::string& folder);

  // A run with this fault at this call of the disk, in a copy of "good".
  Finished crash(const Fault& fault, int call);
  // How many calls one without a fault makes.
  int calls(const Fault& fault);
  // The step of the checkpoint that `latest` names: 2, 4 or 6. An Error unless it is whole, and what a run
  // without faults writes.
  int step_left() const;
  // The next start goes on from it, to where a run without faults ends, and leaves nothing unfinished; or an
  // Error.
  void check_goes_on();
  bool has(const std::string& name) const;

  // A fault at the first call of the disk, and at each that is `stride` after one. How many runs left which
  // step behind; an Error names the call.
  std::map<int, int> sweep(const Fault& fault, int stride);

 private:
  std::string file(const std::string& name) const { return workshop_.file("crashed/" + name); }
  Finished run(int ranks, std::string environment, const std::string& options) const;

  std::string folder_;
  Workshop workshop_;
  std::map<int, std::string> content_;  // of the checkpoint of each step
};

}  // namespace flatshard::test
