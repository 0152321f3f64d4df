#pragma once
// Measured times of ops on a GPU, from the file of `bench --device cuda --json`: how they compare with the
// times that published figures give for the same shapes.

#include <string>
#include <vector>

#include "runtime/recording.h"
#include "train/simulate/cluster.h"

namespace flatshard {

// An Error names the file and its defect.
std::vector<MeasuredOp> read_op_table(const std::string& path, const Cluster& cluster);

// The time of an op relative to its time by published figures: the mean over measured calls of the same op in
// the same dtype, in which nearer calls count more. 1 if there are none.
double measured_factor(const std::vector<MeasuredOp>& measured, const OpCall& op, int64_t seq_len);

// The least factor of a matrix product; 1 if no product was measured to be faster than by published figures.
double least_product_factor(const std::vector<MeasuredOp>& measured);

}  // namespace flatshard
