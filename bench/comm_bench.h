#pragma once
// Times the verbs of a communicator between the ranks of mpirun, each beside MPI's own call: the two take
// turns in one process on the same tensors. A time is that of the slowest rank. Bandwidths are those of
// nccl-tests: bytes of the whole tensor (what a rank has times the number of ranks) per second, and "bus",
// what each rank receives of it, (n - 1) / n.

#include <string>
#include <vector>

#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct CommResult {
  std::string verb, beside;  // all_gather, MPI_Allgather
  int64_t bytes = 0;         // of the whole tensor
  int ranks = 1;
  int samples = 0;
  Spread ours, plain;  // seconds of a call
  double ratio = 1;    // median of ours / plain, each of neighbours in time

  double algorithm_rate() const { return static_cast<double>(bytes) / ours.median; }
  double bus_rate() const { return algorithm_rate() * (ranks - 1) / ranks; }
};

// Prints a line on rank 0 as each result comes. `seconds` is the time for one verb and size.
std::vector<CommResult> measure_comm(World& world, double seconds);

}  // namespace flatshard::bench
