#pragma once
// The hosts of a run, as a table and as a record. Before the first step, the table shows the user whether all
// hosts are there, with the devices and networks that they should have, and how fast they exchange data.

#include <string>
#include <vector>

#include "comm/world.h"
#include "train/report/start_records.h"
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

// The record of the start in progress for starts.jsonl. `device` is this rank's, `step` the number of
// completed steps, `command` the command line of rank 0. Collective.
StartRecord this_start(Device device, World& world, int64_t step, const std::string& command);

}  // namespace flatshard
