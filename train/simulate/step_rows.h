#pragma once
// The recorded step of one rank of each pipeline stage as rows of a replay: ops, exchanges and copies with
// the durations that a model of the machines gives them.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/recording.h"
#include "train/setup/run_setup.h"
#include "train/simulate/cluster.h"
#include "train/simulate/op_times.h"
#include "train/simulate/replay.h"

namespace flatshard {

// What an item of the compute stream is for.
enum class StepPart : uint8_t { products, attention, others, update };

struct StepRow {
  int rank = 0;
  Recording recording;
  // An item for each of the recording that is not the begin or the end of a scope.
  ReplayRow replay;
  std::vector<StepPart> parts;        // by item
  std::vector<int> stream_of_record;  // by number of the record
  int compute = 0;                    // the stream
};

// The name of an op or an exchange in a trace.
std::string traced_name(const Recording& recording, const Recording::Item& item);

std::vector<StepRow> step_rows(const RunSetup& setup, const Cluster& cluster, const OpProfile& profile = {});
// A step after one like it; the rows get what that one leaves.
Replayed replay_rows(std::vector<StepRow>& rows);
// Until the compute streams of all rows have ended.
double end_of_step(const std::vector<StepRow>& rows, const Replayed& played);

// The cluster as ranks find it that copy from and to their host at the same time.
Cluster shared_bus(const RunSetup& setup, const Cluster& cluster);

// The same step with fewer micro-batches. A step's time grows by the same amount with every further round of
// micro-steps, as the schedule repeats.
RunSetup with_micro_steps(const RunSetup& setup, int64_t micro_steps);

}  // namespace flatshard
