#pragma once
// The machines of a run as a simulation sees them: GPUs, the links between the GPUs of a node, and the
// network between nodes; or the processors of hosts.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/recording.h"
#include "train/measure/gpu_models.h"

namespace flatshard {

// A level of the network: the number of nodes that share it, and the factor by which the bandwidth of their
// cards exceeds its own.
struct NetworkTier {
  int64_t nodes = 0;
  double oversubscription = 1;
};

// A timed call of an op on a CPU.
struct TimedOp {
  OpCall op;
  double seconds = 0;
};

// Measured rates of a rank that computes on the processors of its host.
struct CpuRates {
  double products = 0;           // operations per second of the largest matrix products
  double copies = 0;             // bytes per second that a copy reads and writes
  double reduces = 0;            // bytes per second received in a reduce-scatter; 0: as in others
  double taken_by_exchange = 0;  // share of compute threads that a running exchange takes
  std::vector<TimedOp> ops{};    // timed ops of a smaller model
};

// A timed call of an op on a GPU.
struct MeasuredOp {
  std::string op, dtype;
  double work = 0, intensity = 0;  // its OpCost
  double factor = 1;               // measured time, relative to the time by published figures
};

struct Cluster {
  std::string source;  // a GPU kind, or the path of a cluster file
  GpuModel gpu{};
  std::optional<CpuRates> cpu{};  // if set, there are no GPUs, and `gpu` has a rank's memory and its rate
  std::string op_table{};         // the file of measured ops, or ""
  std::vector<MeasuredOp> measured_ops{};
  double power_watts = 0;     // power limit of a GPU; 0: as published
  double price_per_hour = 0;  // price of a GPU; 0: not known

  // The links of a GPU inside a node: GB/s in one direction, the share of it that a ring reaches, and the
  // time of a step of a ring.
  bool nvlink = true;
  double link_gbps = 0, link_efficiency = 0, link_step_us = 0;
  int64_t node_gpus = 8;

  // GB/s of copies between a GPU and its host, GB/s of an optimizer update of one rank on the host, the time
  // in which the host enqueues an item, and the number of GPUs that share a connection to the host.
  double host_gbps = 0, update_gbps = 0, issue_us = 0;
  int64_t gpus_per_switch = 1;

  // Network cards of a node, GB/s of a card, the share of it that a ring reaches, and the time of a step of a
  // ring between nodes.
  int64_t nics_per_node = 0;
  double nic_gbps = 0, nic_efficiency = 0, network_step_us = 0;
  std::vector<NetworkTier> tiers{};  // levels by ascending number of nodes; none: no oversubscription

  // Standard deviations of the logarithm of the time of a rank's work: of a deviation that the rank keeps,
  // and of one that changes in each step.
  double jitter_fixed = 0, jitter_step = 0;

  // The usual rates of NVLink, or of PCIe, as far as they do not depend on the GPU.
  void set_nvlink(bool has_nvlink);
  // The oversubscription of a network that reaches this many nodes.
  double oversubscription(double nodes) const;
};

// An Error of --for that lists the known GPUs if there is no such one.
const GpuModel& gpu_model(const std::string& name);
// The cluster with the node and network that are usual for this kind of GPU.
Cluster usual_cluster(const GpuModel& gpu);

// Floating-point operations per second of dense matrix products: published, or measured on CPUs.
double matrix_rate(const Cluster& cluster, DType compute, bool tf32);

}  // namespace flatshard
