#pragma once
// MPI's own collectives on f32, over all ranks: what ours are compared with. `part` is the number of elements
// that a rank has of the whole.

#include <cstdint>

namespace flatshard::bench {

void mpi_all_gather(float* full, const float* shard, int64_t part);
void mpi_all_to_all(float* received, const float* sent, int64_t part);
void mpi_reduce_scatter(float* shard, const float* full, int64_t part);

}  // namespace flatshard::bench
