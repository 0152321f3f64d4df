#pragma once
// The output of the benchmark: a header with the machine and its ceilings, an aligned line per case, and the
// same as JSON in full precision.

#include <string>
#include <vector>

#include "bench/comm_bench.h"
#include "bench/harness.h"
#include "bench/lora_bench.h"
#include "bench/machine.h"
#include "bench/step_bench.h"

namespace flatshard::bench {

// A table with columns wide enough for the given cases.
struct Table {
  explicit Table(const std::vector<Case>& cases);
  std::string header() const;
  std::string line(const Result& result) const;

 private:
  std::string name(const std::string& op, const std::string& shape, const std::string& dtype) const;
  int op_width_, shape_width_;
};

// Formats at least `significant` significant digits, without an exponent: "12.35", "123.5", "12346".
std::string digits(double value, int significant = 4);

std::string head_lines(const Machine& machine, const Ceilings& ceilings);
// Measures the ceilings again and reports their drift since the start.
std::string drift_lines(Ceilings& ceilings);
std::string summary_lines(const std::vector<Result>& results);

// Returns {"machine": ..., "ceilings": ..., "cases": [...]}.
std::string to_json(const Machine& machine, const Ceilings& ceilings, const std::vector<Result>& results);
// Return one line: the JSON without the cases; a single case.
std::string json_line(const Machine& machine, const Ceilings& ceilings);
std::string json_line(const Result& result);
// Returns {"machine": ..., "collectives": [...]}.
std::string to_json(const Machine& machine, const std::vector<CommResult>& results);
// Return {"machine": ..., "ceilings": ..., "steps": [...]}, and a single step on one line.
std::string to_json(const Machine& machine, const Ceilings& ceilings, const std::vector<StepResult>& results);
std::string json_line(const StepResult& result);
// Returns {"adapters": ..., "frozen": ..., "full": ...}.
std::string json_line(const LoraRound& round);

}  // namespace flatshard::bench
