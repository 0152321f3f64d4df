#include "planner/times/measured_ops.h"

#include <algorithm>
#include <cmath>

#include "planner/times/op_times.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

// The distance of costs at which a measured factor counts half: a ratio of 1.3.
constexpr double kNear = 0.07;

}  // namespace

OpCost cost_of(const OpCall& op, int64_t seq_len) {
  const double work = work_of(op, seq_len);
  return {work, work / op.bytes};
}

double measured_factor(const std::vector<MeasuredOp>& measured, const OpCall& op, int64_t seq_len) {
  const OpCost cost = cost_of(op, seq_len);
  double sum = 0, weights = 0;
  for (const MeasuredOp& m : measured) {
    if (m.op != op.name || m.dtype != str(op.dtype)) continue;
    const double far = std::log(cost.work / m.work), other = std::log(cost.intensity / m.intensity);
    const double weight = 1 / (kNear + far * far + other * other);
    sum += weight * std::log(m.factor);
    weights += weight;
  }
  return weights > 0 && std::isfinite(sum) ? std::exp(sum / weights) : 1;
}

double least_product_factor(const std::vector<MeasuredOp>& measured) {
  double least = 1;
  for (const MeasuredOp& m : measured)
    if (is_product(m.op)) least = std::min(least, m.factor);
  return least;
}

}  // namespace flatshard
