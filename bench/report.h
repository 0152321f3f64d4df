#pragma once
// What the benchmark prints: a head with the machine and its ceilings, one aligned line per case, and the
// same as JSON with every number in full.

#include <string>
#include <vector>

#include "bench/comm_bench.h"
#include "bench/harness.h"
#include "bench/machine.h"
#include "bench/step_bench.h"

namespace flatshard::bench {

// Column widths for the cases to come.
struct Table {
  explicit Table(const std::vector<Case>& cases);
  std::string header() const;
  std::string line(const Result& result) const;

 private:
  std::string name(const std::string& op, const std::string& shape, const std::string& dtype) const;
  int op_width_, shape_width_;
};

// At least so many significant digits, without an exponent: "12.35", "123.5", "12346".
std::string digits(double value, int significant = 4);

std::string head_lines(const Machine& machine, const Ceilings& ceilings);
// How far the ceilings moved since the start: measures them again.
std::string drift_lines(Ceilings& ceilings);
std::string summary_lines(const std::vector<Result>& results);

// {"machine": ..., "ceilings": ..., "cases": [...]}
std::string to_json(const Machine& machine, const Ceilings& ceilings, const std::vector<Result>& results);
// The same without the cases, and one case, each on one line.
std::string json_line(const Machine& machine, const Ceilings& ceilings);
std::string json_line(const Result& result);
// {"machine": ..., "collectives": [...]}
std::string to_json(const Machine& machine, const std::vector<CommResult>& results);
// {"machine": ..., "ceilings": ..., "steps": [...]}, and one step on one line.
std::string to_json(const Machine& machine, const Ceilings& ceilings, const std::vector<StepResult>& results);
std::string json_line(const StepResult& result);

}  // namespace flatshard::bench
