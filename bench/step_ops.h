#pragma once
// The ops of a training step on a GPU by name and shape, with the time that each takes: from the spans of
// traced steps. A product is named by its extents, as in the cases of gemm.

#include <string>
#include <vector>

#include "runtime/trace.h"

namespace flatshard::bench {

struct StepOp {
  std::string name, shape;  // "gemm", "16384 x 4864 x 896 b^T"
  DType dtype = DType::f32;
  double calls = 0, seconds = 0;  // per step
  double flops = 0, bytes = 0;    // per call, by the formulas of the op
};

// The ops in a trace of `steps` steps, those that take the most time first.
std::vector<StepOp> step_ops(const Trace& trace, int steps);

// A table of the ops; `step_seconds` is the time of an untraced step.
std::string step_ops_table(const std::vector<StepOp>& ops, double step_seconds);

}  // namespace flatshard::bench
