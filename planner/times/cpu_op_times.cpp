#include <algorithm>
#include <cmath>
#include <string_view>

#include "planner/times/op_times.h"

namespace flatshard {
namespace {

// The best kernels stream more than a plain copy does: AdamW reaches 1.16 of it (bench/results/cpu-zen4.md).
constexpr double kMostOfCopies = 1.16;
// The share of a copy's rate that most ops reach, for ops of which no similar one was timed.
constexpr double kOfCopies = 0.85;
// The distance of shapes at which a rate counts a quarter: a factor of 1.3 in one extent. With a larger one,
// the many small products would outweigh the product of the same shape.
constexpr double kNear = 0.07;
constexpr int64_t kTransposes = 3;  // flags of a product that choose its kernel

bool is_grouped(std::string_view op) { return op == "grouped_product"; }

bool are_alike(const OpCall& a, const OpCall& b) {
  if (is_product(a.name))
    return is_product(b.name) && is_grouped(a.name) == is_grouped(b.name) && a.dtype == b.dtype &&
           (a.shape[3] & kTransposes) == (b.shape[3] & kTransposes);
  return a.name == b.name && a.dtype == b.dtype;
}

// The squared distance of the shapes of two ops, in logarithms.
double distance(const OpCall& a, const OpCall& b) {
  double sum = 0;
  for (size_t i = 0; i < (is_product(a.name) ? size_t{3} : a.shape.size()); ++i) {
    if (a.shape[i] <= 0 || b.shape[i] <= 0) continue;
    const double d = std::log(static_cast<double>(a.shape[i]) / static_cast<double>(b.shape[i]));
    sum += d * d;
  }
  return sum;
}

// Seconds to decode the weight of a product.
double decoding_seconds(const CpuRates& rates, const OpCall& op) {
  if (op.name != "four_bit_product") return 0;
  for (const TimedOp& timed : rates.ops)
    if (timed.op.name == "dequantize_four_bit")
      return timed.seconds * static_cast<double>(op.shape[1] * op.shape[2]) /
             static_cast<double>(timed.op.shape[0]);
  return 0;
}

// Seconds for a unit of work: the mean over similar ops, in which nearer shapes count more; 0 if there are
// none.
double seconds_of_unit(const CpuRates& rates, const OpCall& op) {
  double seconds = 0, weights = 0;
  for (const TimedOp& timed : rates.ops) {
    if (!are_alike(op, timed.op)) continue;
    const double work = work_of(timed.op, 0);
    if (work <= 0) continue;
    const double near = kNear + distance(op, timed.op), weight = 1 / (near * near);
    seconds += weight * timed.seconds / work;
    weights += weight;
  }
  return weights > 0 ? seconds / weights : 0;
}

}  // namespace

OpTime cpu_op_time(const CpuRates& rates, const OpCall& op, int64_t seq_len) {
  const double unit = seconds_of_unit(rates, op),
               own = unit > 0
                         ? std::max(unit * work_of(op, seq_len), op.bytes / (rates.copies * kMostOfCopies))
                         : op.bytes / (rates.copies * kOfCopies),
               seconds = own + decoding_seconds(rates, op);
  const double memory = seconds > 0 ? op.bytes / rates.copies / seconds : 0;
  return {.seconds = seconds, .processors = 1, .memory = std::min(1.0, memory)};
}

}  // namespace flatshard
