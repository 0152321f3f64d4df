#pragma once
// The machines of a run as a simulation sees them: GPUs, the links between those of a node, the network
// between nodes. A built-in GPU kind implies a node and a network that are usual for it; a cluster file can
// state every number.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/simulate/gpu_models.h"
#include "train/simulate/op_rates.h"

namespace flatshard {

// A level of the network: nodes that share it, and how far it is short of the bandwidth of their cards.
struct NetworkTier {
  int64_t nodes = 0;
  double oversubscription = 1;
};

// Measured rates of a rank that computes on the processors of its host.
struct CpuRates {
  double products = 0;           // floating-point operations per second of the largest ones
  double copies = 0;             // bytes per second, read and written
  double reduces = 0;            // bytes per second that it receives in a reduce-scatter; 0: as in others
  double taken_by_exchange = 0;  // of the compute threads, while an exchange runs beside them
  std::vector<TimedOp> ops{};    // of a smaller model
};

// A timed call of an op on a GPU.
struct MeasuredOp {
  std::string op, dtype;
  double work = 0, intensity = 0;  // as measured_factor() compares them
  double factor = 1;               // its time, relative to that by published figures
};

struct Cluster {
  std::string source;  // a GPU kind, or the path of a cluster file
  GpuModel gpu{};
  std::optional<CpuRates> cpu{};  // then there are no GPUs, and `gpu` has the memory of a rank and its rate
  std::string op_table{};         // the file of measured ops, or ""
  std::vector<MeasuredOp> measured_ops{};
  double power_watts = 0;     // that a GPU may take; 0: as published
  double price_per_hour = 0;  // of a GPU; 0: not known

  // The links of a GPU inside a node: GB/s in one direction, the share of it that a ring reaches, and the
  // time of a step of a ring.
  bool nvlink = true;
  double link_gbps = 0, link_efficiency = 0, link_step_us = 0;
  int64_t node_gpus = 8;

  // Copies between a GPU and its host, GPUs that share a connection, the bytes per second of an optimizer
  // update of one rank on the host, and the time in which the host enqueues an item.
  double host_gbps = 0, update_gbps = 0, issue_us = 0;
  int64_t gpus_per_switch = 1;

  // Network cards of a node, and the time of a step of a ring between nodes.
  int64_t nics_per_node = 0;
  double nic_gbps = 0, nic_efficiency = 0, network_step_us = 0;
  std::vector<NetworkTier> tiers{};  // by ascending number of nodes; none: no oversubscription

  // Standard deviations of the logarithm of the time that the work of a rank takes: one that a rank keeps,
  // and one of each step.
  double jitter_fixed = 0, jitter_step = 0;

  // How far a network that reaches so many nodes is short of the bandwidth of their cards.
  double oversubscription(double nodes) const;
};

// With the usual node and network of this kind.
Cluster usual_cluster(const GpuModel& gpu);
// From a TOML file; keys that it leaves out have the values of usual_cluster().
Cluster read_cluster(const std::string& path);
// `name` is a GPU kind, or the path of a file, which ends in ".toml".
Cluster cluster_named(const std::string& name);

// Floating-point operations per second of dense matrix products: published, or measured on CPUs.
double matrix_rate(const Cluster& cluster, DType compute, bool tf32);

// What the rates of the cluster come from, a line.
std::string describe_rates(const Cluster& cluster);

}  // namespace flatshard
