#pragma once
// The split of a global batch. The batch is a fixed number of lanes of train.lane_size sequences each. A
// micro-step of a rank has one or more lanes, or a lane spans several micro-steps, which add to it in order.
// Gradients are summed over lanes in one tree, so the results depend on the lanes and on the micro-batches
// that a lane consists of, but not on how lanes are distributed over ranks and micro-steps.

#include <cstdint>
#include <optional>

#include "train/config/config.h"

namespace flatshard {

struct Batching {
  int64_t total_sequences;  // sequences of an optimizer step
  int64_t lane_sequences;   // sequences of a lane in a micro-step, computed together
  int ranks;
  int64_t lanes;           // lanes of a rank in a micro-step
  int64_t micro_steps;     // micro-steps of an optimizer step
  int64_t lane_steps = 1;  // micro-steps that a lane spans

  int64_t lane_size() const { return lane_sequences * lane_steps; }
  int64_t all_lanes() const { return total_sequences / lane_size(); }
  // Whether any power-of-two number of ranks gives the same bits, up to the number of lanes.
  bool same_bits_anywhere() const;
};

// train.lane_size, or its default: batch_size_per_device, which gives the same bits on any number of ranks.
// On one rank without offload the default is the whole batch, which takes one gradient buffer.
int64_t lane_size_of(const Config& config, int ranks);

// If the batch does not divide over the ranks, the Error lists the nearest combinations that do.
Batching batching_of(const TrainConfig& c, int64_t lane_size, int ranks);

// An Error unless the run has either steps or epochs.
void check_length(const TrainConfig& c);

// The number of optimizer steps of the run; `steps_of_epochs` is the number of steps in train.epochs.
int64_t total_steps(const Config& config, double steps_of_epochs);

// checkpoint.save_every: steps (below 1: a fraction of the run), or seconds; both 0 if no checkpoint is due.
struct SaveInterval {
  double steps = 0, seconds = 0;
};
SaveInterval save_interval(const CheckpointConfig& c);
// The interval of checkpoint.best_every; nothing if it is "auto".
std::optional<SaveInterval> best_interval(const CheckpointConfig& c);
// Whether a run saves after certain steps. Such checkpoints may be frequent; checkpoints by the clock are
// not.
bool saves_by_steps(const CheckpointConfig& c);

// The steps between two events, for a key such as train.eval_every. A value below 1 is a fraction of the run,
// rounded up.
int64_t steps_between(double every, int64_t total_steps, const char* key);

}  // namespace flatshard
