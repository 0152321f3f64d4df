#pragma once
// Runs the program train on the machine, in the process of the tests.

#include <string>
#include <vector>

#include "ptx_vm/ptx_vm.h"
#include "tests/process.h"

namespace flatshard::ptx_vm {

// Runs train and returns its output. A finding of the machine fails the test.
test::Finished train_here(const std::vector<std::string>& arguments, WorkOrder order);

struct Outcome {
  std::vector<double> losses;  // losses of the steps, and of the evaluation at the end
  std::string weights;
  bool operator==(const Outcome&) const = default;
};

// The outcome of a run that succeeded on the device and wrote to the folder.
Outcome outcome_of(const test::Finished& run, const std::string& folder, const std::string& device);

}  // namespace flatshard::ptx_vm
