#pragma once
// Waiting for the other ranks without taking processor time from them. MPI's blocking calls poll from the
// first rank's arrival to the last one's, so that a rank that waits slows down a rank of its host that
// computes.

#include <chrono>

#include <mpi.h>

namespace flatshard {

// Whether the request completes within some time. The rank sleeps meanwhile.
bool complete(MPI_Request& request, std::chrono::nanoseconds within = std::chrono::nanoseconds::max());

// Whether all ranks of `comm` call this within some time. They sleep meanwhile.
bool meet(MPI_Comm comm, std::chrono::nanoseconds within = std::chrono::nanoseconds::max());

}  // namespace flatshard
