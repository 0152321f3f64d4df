#pragma once
// Times single ops on a device against its ceilings: selected cases, as a table and as JSON, or, as a server,
// one case per request, so that another program can interleave its own measurements.

#include <iosfwd>
#include <string>
#include <vector>

#include "bench/case.h"

namespace flatshard::bench {

struct OpOptions {
  std::vector<std::string> words;  // words that the label of a case must all contain (words.h)
  Device device = Device::cpu();
  double seconds = 2;  // sampling time per case
  // Selects small cases and ceilings, for tests of the program.
  bool small = false;
  bool detail = false;  // also cases with is_detail
  int rounds = 1;       // times to time all cases, one after the other
  bool tuned = false;   // also times the products by the fastest of cuBLASLt's algorithms (tuned_products.h)
  std::string json_file;  // empty: no file
};

// The selected cases that can be timed on the device. Throws an Error if no label contains all words.
std::vector<Case> op_cases(const OpOptions& options);

// Prints the table as the cases are timed, and updates the JSON file after each of them. Returns the exit
// code: 1 if an op failed its check.
int time_ops(const OpOptions& options, std::ostream& out);

// Runs each case `times` times on the same arguments, and prints whether all results have the same bits.
// Returns the exit code: 1 if not.
int repeat_ops(const OpOptions& options, int times, std::ostream& out);

// Writes a line of JSON with machine and ceilings. Then reads labels of cases, one per line, and answers each
// with a line of JSON with the result, until the end of the input.
void serve_ops(const OpOptions& options, std::istream& in, std::ostream& out);

}  // namespace flatshard::bench
