#pragma once
// Machines as a TOML file describes them (../README.md#cluster-files), with the ops that `bench` has timed on
// a GPU.

#include <string>
#include <vector>

#include "planner/machines/cluster.h"

namespace flatshard {

// Keys that the file leaves out have the values of usual_cluster(). An Error names the file, the line and the
// bound.
Cluster read_cluster(const std::string& path);
// `name` is a GPU kind, or the path of a file, which ends in ".toml".
Cluster cluster_named(const std::string& name);

// The measured times of ops on a GPU, from the file of `bench --device cuda --json`, compared with those of
// the cluster's published figures. An Error names the file and its defect.
std::vector<MeasuredOp> read_op_table(const std::string& path, const Cluster& cluster);

}  // namespace flatshard
