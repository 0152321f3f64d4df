#pragma once
// Machines as a TOML file describes them (../README.md#cluster-files).

#include <string>

#include "planner/machines/cluster.h"

namespace flatshard {

// Keys that the file leaves out have the values of usual_cluster(). An Error names the file, the line and the
// bound.
Cluster read_cluster(const std::string& path);
// `name` is a GPU kind, or the path of a file, which ends in ".toml".
Cluster cluster_named(const std::string& name);

}  // namespace flatshard
