#pragma once
// MPI collectives on f32 over all ranks, for comparison. `part` is the number of elements in a rank's shard.

#include <cstdint>

namespace flatshard::bench {

void mpi_all_gather(float* full, const float* shard, int64_t part);
void mpi_all_to_all(float* received, const float* sent, int64_t part);
void mpi_reduce_scatter(float* shard, const float* full, int64_t part);

}  // namespace flatshard::bench
