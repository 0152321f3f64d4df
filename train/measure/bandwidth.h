#pragma once
// Bandwidth between ranks, and the micro-batch size from which compute can hide communication: the number of
// tokens that a rank computes in the time it needs to receive the bytes of a micro-step.

#include "comm/world.h"
#include "train/setup/run_setup.h"

namespace flatshard {

struct Bandwidth {
  double bytes_per_second = 0;  // rate at which each rank receives
  bool measured = false;        // whether it was measured at startup; otherwise it is from the config
};

// parallel.bandwidth_gbps, or if it is 0 the rate of a few all-gathers of the size of the run's units, which
// take some hundredths of a second. Collective: all ranks call it.
Bandwidth bandwidth_of(const RunSetup& setup, World& world);

// The bytes per second that each rank receives in a reduce-scatter of the communication library, of the same
// size. Collective.
double reduce_rate(const RunSetup& setup, World& world);

// The time of an all-reduce of about this many bytes, at least one float for each rank, made as a
// reduce-scatter and an all-gather. Collective.
double all_reduce_seconds(const RunSetup& setup, World& world, int64_t bytes);

// bytes / bytes_per_second * rank_peak / flops_per_token
double tokens_to_hide(double bytes, double bytes_per_second, double rank_peak, double flops_per_token);

}  // namespace flatshard
