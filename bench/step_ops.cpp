#include "bench/step_ops.h"

#include <algorithm>
#include <chrono>
#include <iomanip>
#include <map>
#include <sstream>

namespace flatshard::bench {
namespace {

// The extents of a product, and what else its kernel depends on: the flags of the op "gemm".
std::string product_shape(const OpCall& op) {
  const auto [M, N, K, flags, d, e, f] = op.shape;
  return str(M, " x ", N, " x ", K, flags & 1 ? " a^T" : "", flags & 2 ? " b^T" : "", flags & 4 ? " +" : "",
             flags & 8 ? " tf32" : "", flags & 16 ? " into f32" : "");
}

std::string shape_of(const OpCall& op) {
  if (op.name == "gemm") return product_shape(op);
  std::string text;
  for (const int64_t extent : op.shape)
    if (extent > 0) text += str(text.empty() ? "" : " x ", extent);
  return text;
}

}  // namespace

std::vector<StepOp> step_ops(const Trace& trace, int steps) {
  std::map<OpCall, StepOp> found;
  trace.each_op([&](const OpCall& op, Trace::Clock::duration duration) {
    StepOp& all = found[op];
    all.calls += 1.0 / steps;
    all.seconds += std::chrono::duration<double>(duration).count() / steps;
  });
  std::vector<StepOp> ops;
  for (const auto& [op, times] : found)
    ops.push_back({.name = std::string(op.name),
                   .shape = shape_of(op),
                   .dtype = op.dtype,
                   .calls = times.calls,
                   .seconds = times.seconds,
                   .flops = op.flops,
                   .bytes = op.bytes});
  std::stable_sort(ops.begin(), ops.end(),
                   [](const StepOp& a, const StepOp& b) { return a.seconds > b.seconds; });
  return ops;
}

std::string step_ops_table(const std::vector<StepOp>& ops, double step_seconds) {
  std::ostringstream out;
  out << std::left << std::setw(26) << "op" << std::setw(44) << "shape" << std::right << std::setw(5)
      << "type" << std::setw(8) << "calls" << std::setw(10) << "us each" << std::setw(10) << "ms"
      << std::setw(8) << "% step" << std::setw(10) << "TFLOP/s" << std::setw(8) << "GB/s" << '\n'
      << std::fixed;
  double sum = 0;
  for (const StepOp& op : ops) {
    const double each = op.seconds / op.calls;
    sum += op.seconds;
    out << std::left << std::setw(26) << op.name << std::setw(44) << op.shape << std::right << std::setw(5)
        << str(op.dtype) << std::setprecision(0) << std::setw(8) << op.calls << std::setprecision(1)
        << std::setw(10) << each * 1e6 << std::setprecision(2) << std::setw(10) << op.seconds * 1e3
        << std::setprecision(1) << std::setw(8) << 100 * op.seconds / step_seconds << std::setw(10)
        << op.flops / each * 1e-12 << std::setprecision(0) << std::setw(8) << op.bytes / each * 1e-9 << '\n';
  }
  out << std::setprecision(2) << "all ops " << sum * 1e3 << " ms of a step of " << step_seconds * 1e3
      << " ms; each traced op includes some 2 us of the events around it\n";
  return std::move(out).str();
}

}  // namespace flatshard::bench
