#pragma once
// Times the collectives of a communicator between the ranks of mpirun, interleaved with the corresponding MPI
// calls on the same tensors. Times are those of the slowest rank. Bandwidths are defined as in nccl-tests:
// bytes of the full tensor (a rank's shard times the number of ranks) per second, and bus bandwidth, the (n -
// 1) / n of it that a rank receives.

#include <string>
#include <vector>

#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct CommResult {
  std::string verb, mpi_call;  // names such as all_gather and MPI_Allgather
  int64_t bytes = 0;           // size of the full tensor
  int ranks = 1;
  int samples = 0;
  Spread ours, plain;  // seconds per call
  double ratio = 1;    // median of ours / plain over pairs of neighboring samples

  double algorithm_rate() const { return static_cast<double>(bytes) / ours.median; }
  double bus_rate() const { return algorithm_rate() * (ranks - 1) / ranks; }
};

// Rank 0 prints each result as it is measured. `seconds` is the time per collective and size.
std::vector<CommResult> measure_comm(World& world, double seconds);

}  // namespace flatshard::bench
