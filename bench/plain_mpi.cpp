#include "bench/plain_mpi.h"

#include <mpi.h>

#include "runtime/check.h"

namespace flatshard::bench {
namespace {

void mpi_check(int status, const char* call) {
  check(status == MPI_SUCCESS, call, " failed with code ", status);
}

}  // namespace

void mpi_all_gather(float* full, const float* shard, int64_t part) {
  const int count = static_cast<int>(part);
  mpi_check(MPI_Allgather(shard, count, MPI_FLOAT, full, count, MPI_FLOAT, MPI_COMM_WORLD), "MPI_Allgather");
}

void mpi_all_to_all(float* received, const float* sent, int64_t part) {
  const int count = static_cast<int>(part);
  mpi_check(MPI_Alltoall(sent, count, MPI_FLOAT, received, count, MPI_FLOAT, MPI_COMM_WORLD), "MPI_Alltoall");
}

void mpi_reduce_scatter(float* shard, const float* full, int64_t part) {
  mpi_check(MPI_Reduce_scatter_block(full, shard, static_cast<int>(part), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD),
            "MPI_Reduce_scatter_block");
}

}  // namespace flatshard::bench
