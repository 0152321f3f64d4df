#pragma once
// Runs of the program train that are killed, or whose disk fails, at a chosen file system call
// (tests/disk_faults.cpp), and the checkpoints that remain.

#include <map>
#include <string>

#include "tests/workshop.h"

namespace flatshard::test {

// The kind of a fault, and the run in which it occurs.
struct Fault {
  std::string what;  // kill, fail or full
  int ranks = 1, on_rank = 0;
  std::string options{};  // options of the run
};

class Crashes {
 public:
  // Creates a folder "good" in this one, with the checkpoint of step 2 of a run. Runs with faults resume from
  // it to step 6, save at 4, in the background, and at 6, and remove one older checkpoint.
  explicit Crashes(const std::string& folder);

  // Runs with this fault at this call, in a copy of "good".
  Finished crash(const Fault& fault, int call);
  // The number of calls in a run without a fault.
  int calls(const Fault& fault);
  // The step of the checkpoint named by `latest`: 2, 4 or 6. Throws an Error unless the checkpoint is
  // complete and equals that of a run without faults.
  int step_left() const;
  // Throws an Error unless the next run resumes from it, ends like a run without faults and leaves no
  // temporary files.
  void check_resumes();
  bool has(const std::string& name) const;

  // Injects the fault into the first call and every `stride`-th after it. Returns the number of runs that
  // left each step. An Error names the call.
  std::map<int, int> sweep(const Fault& fault, int stride);

 private:
  std::string file(const std::string& name) const { return workshop_.file("crashed/" + name); }
  Finished run(int ranks, std::string environment, const std::string& options) const;

  std::string folder_;
  Workshop workshop_;
  std::map<int, std::string> content_;  // content of the checkpoint of each step
};

}  // namespace flatshard::test
