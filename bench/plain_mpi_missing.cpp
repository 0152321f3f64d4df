// A build without MPI has only one rank and never calls these.

#include "bench/plain_mpi.h"
#include "runtime/check.h"

namespace flatshard::bench {

void mpi_all_gather(float*, const float*, int64_t) { fail("this build has no MPI"); }
void mpi_all_to_all(float*, const float*, int64_t) { fail("this build has no MPI"); }
void mpi_reduce_scatter(float*, const float*, int64_t) { fail("this build has no MPI"); }

}  // namespace flatshard::bench
