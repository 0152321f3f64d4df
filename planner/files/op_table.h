#pragma once
// Measured times of ops on a GPU, from the file of `bench --device cuda --json`.

#include <string>
#include <vector>

#include "planner/machines/cluster.h"

namespace flatshard {

// How the measured times compare with those of the cluster's published figures. An Error names the file and
// its defect.
std::vector<MeasuredOp> read_op_table(const std::string& path, const Cluster& cluster);

}  // namespace flatshard
