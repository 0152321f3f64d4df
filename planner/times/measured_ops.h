#pragma once
// Measured ops of a GPU as factors of the times by published figures, for other shapes, too.

#include <vector>

#include "planner/machines/cluster.h"
#include "runtime/recording.h"

namespace flatshard {

// The quantities that distinguish calls of an op: its work, and its work per byte, which for attention stands
// for the length of the sequences.
struct OpCost {
  double work, intensity;
};
OpCost cost_of(const OpCall& op, int64_t seq_len);

// The time of an op relative to its time by published figures: the mean over measured calls of the same op in
// the same dtype, in which nearer calls count more. 1 if there are none.
double measured_factor(const std::vector<MeasuredOp>& measured, const OpCall& op, int64_t seq_len);

// The least factor of a matrix product; 1 if no product was measured to be faster than by published figures.
double least_product_factor(const std::vector<MeasuredOp>& measured);

}  // namespace flatshard
