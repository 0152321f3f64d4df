#pragma once
// The recorded step of one rank of each pipeline stage as rows of a replay: ops, exchanges and copies with
// the durations that a model of the machines gives them.

#include <cstdint>
#include <string>
#include <vector>

#include "planner/machines/cluster.h"
#include "planner/simulate/replay.h"
#include "planner/times/op_times.h"
#include "runtime/recording.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// The kind of work of an item of the compute stream.
enum class StepPart : uint8_t { products, attention, others, update, experts };

struct StepRow {
  int rank = 0;
  Recording recording;
  // The replay has an item for each item of the recording that is not the begin or the end of a scope.
  ReplayRow replay;
  std::vector<StepPart> parts;        // part of each item
  std::vector<int> stream_of_record;  // stream of each record, by its number
  int compute = 0;                    // index of the compute stream
};

// The name of an op or an exchange in a trace.
std::string traced_name(const Recording& recording, const Recording::Item& item);

std::vector<StepRow> step_rows(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile = {});
// Replays a step after an equal step; the rows get the work that carries over from it.
Replayed replay_rows(std::vector<StepRow>& rows);
// The time at which the compute streams of all rows have ended.
double end_of_step(const std::vector<StepRow>& rows, const Replayed& played);

// The cluster as ranks find it if all ranks of a host copy from and to it at the same time.
Cluster shared_bus(const RunSetup& setup, const Cluster& cluster);

// The same step with fewer micro-batches. A step's time grows by the same amount with every further round of
// micro-steps, as the schedule repeats.
RunSetup with_micro_steps(const RunSetup& setup, int64_t micro_steps);

}  // namespace flatshard
