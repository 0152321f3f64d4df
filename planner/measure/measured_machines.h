#pragma once
// The machines of a job as its ranks measure them, for a simulation of its steps. Known GPUs have their
// published figures, CPUs measured rates. The bandwidth between ranks, the rate of products and, if a host
// updates, the rate of its updates are measured.
#include <optional>
#include <string>
#include <vector>

#include "comm/world.h"
#include "planner/machines/cluster.h"
#include "train/measure/bandwidth.h"
#include "train/run/matrix_peak.h"
#include "train/setup/run_setup.h"

namespace flatshard {

struct MeasuredRates {
  double products = 0;         // floating-point operations per second of a rank
  double copies = 0;           // bytes per second that a rank on the CPU reads and writes
  double updates = 0;          // bytes per second of an update on the host of GPUs; 0: there is none
  std::vector<TimedOp> ops{};  // timed ops of a smaller model
  double exchanged = 0;        // bytes per second that a rank receives; 0: there is one rank
  double reduced = 0;          // bytes per second received in a reduce-scatter; 0: not slower
};

// Returns nothing for GPUs that are not known, nor for CPUs without times of ops. `gpu` is the name of the
// GPUs as CUDA reports it, or "".
std::optional<Cluster> machines_of_run(const RunSetup& setup, const std::string& gpu,
                                       const MeasuredRates& rates);

// The share of a rank's compute threads that a running exchange takes, since it has a thread of its own.
double taken_by_exchange(int threads, double processors);

// The factor by which the compute threads of a rank take longer than alone if other ranks share its
// processors.
double slowed_by_sharing(int threads, double processors);
double slowed_by_sharing(const RankLayout& layout);

// Measures the rates that are not known already: on a CPU copies, reduce-scatters and ops, in about a second;
// on a GPU with offload the host's updates. Collective. Returns nothing on a GPU whose published figures are
// not known, and on the CPU for a model that reads images.
std::optional<Cluster> measured_machines(const RunSetup& setup, World& world, const MatrixPeak& peak,
                                         const Bandwidth& bandwidth);

// Rates of the ops of a run on the CPU, measured in about a second on a smaller model of the same kind: two
// blocks between an embedding and a head, with 64 to 512 tokens, and the update of their weights. The
// simulator scales them to the shapes of the run. `products` is the rate of matrix products of a rank. Empty
// for models that read images.
std::vector<TimedOp> time_ops(const RunSetup& setup, double products);

// The model that time_ops() runs: it has this width, or the run's if that is smaller.
ModelConfig smaller_model(const ModelConfig& model, int64_t width);

}  // namespace flatshard
