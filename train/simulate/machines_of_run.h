#pragma once
// The machines that a run is on, for a simulation of its own steps: of known GPUs the published figures, of
// CPUs measured rates; the bandwidth between ranks, the rate of products and, where a host updates, that of
// its updates as measured at the start.

#include <optional>
#include <string>

#include "train/setup/run_setup.h"
#include "train/simulate/cluster.h"

namespace flatshard {

struct MeasuredRates {
  double products = 0;         // floating-point operations per second of a rank
  double copies = 0;           // bytes per second that a rank on the CPU reads and writes
  double updates = 0;          // the same of an optimizer on the host of GPUs; 0: it is not there
  std::vector<TimedOp> ops{};  // the same, of a smaller model
  double exchanged = 0;        // bytes per second that a rank receives; 0: there is one rank
  double reduced = 0;          // the same of a reduce-scatter; 0: it is not slower
};

// Nothing on GPUs that are not known, nor on CPUs without times of ops. `gpu` is their name as CUDA reports
// it, or "".
std::optional<Cluster> machines_of_run(const RunSetup& setup, const std::string& gpu,
                                       const MeasuredRates& rates);

// The share of a rank's compute threads that a running exchange takes, which has a thread of its own.
double taken_by_exchange(int threads, double processors);

// How many times as long as alone the compute threads of a rank take if other ranks share its processors.
double slowed_by_sharing(int threads, double processors);
double slowed_by_sharing(const RunSetup& setup);

}  // namespace flatshard
