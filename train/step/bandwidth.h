#pragma once
// How much compute it takes to hide what ranks send each other. A rank receives `bytes` in a micro-step; at
// its bandwidth that takes some time, in which compute could work on so many tokens: with as many or more in
// its micro-batch the exchange can be hidden, with fewer it cannot.

#include "comm/world.h"
#include "train/config/run_setup.h"

namespace flatshard {

struct Bandwidth {
  double bytes_per_second = 0;  // received by each rank
  bool measured = false;        // here and now, with the host's memory; otherwise stated in the config
};

// parallel.bandwidth_gbps, or where it is 0 that of a few all-gathers, which take some hundredths of a
// second. To be called by all ranks.
Bandwidth bandwidth_of(const RunSetup& setup, World& world);

// bytes / bandwidth * rank_peak / operations of a token
double tokens_to_hide(double bytes, double bytes_per_second, double rank_peak, double flops_per_token);

}  // namespace flatshard
