#pragma once
// The time of an exchange between ranks over NCCL, from the model with which NCCL chooses its algorithms:
// a constant, a term for each step of a ring, and the bytes divided by the slowest rate on the way.

#include <string_view>

#include "planner/machines/cluster.h"
#include "runtime/recording.h"
#include "train/setup/rank_layout.h"

namespace flatshard {

// The ranks of a communicator.
struct Members {
  int ranks = 1;
  int on_node = 1;   // members on each node
  double reach = 1;  // nodes from the first member's to the last member's

  double nodes() const { return static_cast<double>(ranks) / on_node; }
};

struct ExchangeTime {
  double seconds = 0;
  bool on_network = false;  // whether it is on the network; otherwise on links inside a node
  double bus_gbps = 0;      // rate at which a GPU receives or sends, while it lasts
};

// The ranks with which `rank` makes a call.
Members members_of(const RankLayout& layout, int rank, const ExchangeCall& call);

ExchangeTime exchange_time(const Cluster& cluster, std::string_view verb, double bytes,
                           const Members& members);

}  // namespace flatshard
