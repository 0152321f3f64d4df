#pragma once
// Waiting for the other ranks without taking processor time from them. MPI's blocking calls poll until the
// last rank arrives, so a waiting rank would slow down the computing ranks of its host.

#include <chrono>

#include <mpi.h>

namespace flatshard {

// Waits for the request, asleep; returns whether it completes within some time.
bool complete(MPI_Request& request, std::chrono::nanoseconds within = std::chrono::nanoseconds::max());

// Waits for all ranks of `comm` to call this, asleep; returns whether they do within some time.
bool meet(MPI_Comm comm, std::chrono::nanoseconds within = std::chrono::nanoseconds::max());

}  // namespace flatshard
