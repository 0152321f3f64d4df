#pragma once
// Times single ops on a device, beside its ceilings: the cases that are asked for, as a table and as JSON;
// or, serving, those that another program asks for, one at a time, so that it can take turns with us.

#include <iosfwd>
#include <string>
#include <vector>

#include "bench/case.h"

namespace flatshard::bench {

struct OpOptions {
  std::vector<std::string> words;  // that a case's label must all hold
  Device device = Device::cpu();
  double seconds = 2;  // of samples, for one case
  // Small cases and small ceilings: they show that the bench works, not what the machine can do.
  bool small = false;
  std::string json_file;  // empty: none
};

// The cases that can be timed on the device; an Error where no label holds all words.
std::vector<Case> op_cases(const OpOptions& options);

// Prints the table as the cases are timed; the JSON file is whole after each of them. Returns the exit code:
// 1 where an op was wrong.
int time_ops(const OpOptions& options, std::ostream& out);

// Writes one line of JSON with machine and ceilings; then, for each line read, which is the label of a case,
// one line of JSON with what was measured. Ends with the input.
void serve_ops(const OpOptions& options, std::istream& in, std::ostream& out);

}  // namespace flatshard::bench
