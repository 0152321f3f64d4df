#pragma once
// The hosts of a run as a table: before the first step, the user sees whether all hosts are there, with the
// devices and networks that they should have, and how fast they exchange data.

#include <string>
#include <vector>

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

struct RankPlace {
  std::string host, device, interfaces;
};
// A header, and a line for each host. Places are by rank.
std::string host_table(const std::vector<RankPlace>& places);

// The table and the time of an all-reduce, as lines of the run's header; "" for a run on one host, unless
// `always`. Collective.
std::string preflight(const RunSetup& setup, World& world, bool always);

}  // namespace flatshard
