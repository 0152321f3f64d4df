#pragma once
// How a global batch is split. It is a fixed number of lanes; a lane is lane_size sequences that are computed
// together. With K lanes per micro-batch, rank r of N works at micro-step m on lanes (m N + r) K to
// (m N + r + 1) K. Gradients are summed over lanes in one tree, so the results depend on the lanes, but not
// on how they are distributed over ranks and micro-steps.

#include <cstdint>

#include "train/config/config.h"

namespace flatshard {

struct Batching {
  int64_t total_sequences;  // per optimizer step
  int64_t lane_sequences;
  int ranks;
  int64_t lanes;        // K: per rank and micro-step
  int64_t micro_steps;  // per optimizer step

  // Whether any power of two of ranks and of micro-steps gives the same bits.
  bool same_bits_anywhere() const;
};

// If the batch does not divide over the ranks, the Error lists the nearest combinations that do.
Batching batching_of(const TrainConfig& c, int ranks);

// An Error unless the run has either steps or epochs.
void check_length(const TrainConfig& c);

// The optimizer steps of the run, given those of train.epochs.
int64_t total_steps(const Config& config, double steps_of_epochs);

// checkpoint.save_every: steps (below 1: a fraction of the run), or seconds; both 0 if no checkpoint is due.
struct SaveInterval {
  double steps = 0, seconds = 0;
};
SaveInterval save_interval(const CheckpointConfig& c);
// Whether a run saves after certain steps. Such checkpoints may be frequent; those by the clock are not.
bool saves_by_steps(const CheckpointConfig& c);

// The steps between two events, for a key such as train.eval_every. A value below 1 is a fraction of the run,
// rounded up.
int64_t steps_between(double every, int64_t total_steps, const char* key);

}  // namespace flatshard
