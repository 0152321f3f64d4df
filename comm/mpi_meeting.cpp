#include "comm/mpi_meeting.h"

#include <algorithm>
#include <thread>

#include "runtime/check.h"

namespace flatshard {
namespace {

// A rank polls for as long as falling asleep would take, then sleeps for a quarter of the time it has waited.
constexpr std::chrono::microseconds kPolling{20}, kLongestSleep{100};

}  // namespace

bool complete(MPI_Request& request, std::chrono::nanoseconds within) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS, "MPI_Test failed");
    if (done) return true;
    const std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - start;
    if (waited > within) return false;
    if (waited > kPolling)
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(waited / 4, kLongestSleep));
  }
}

bool meet(MPI_Comm comm, std::chrono::nanoseconds within) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm, &request) == MPI_SUCCESS, "MPI_Ibarrier failed");
  return complete(request, within);
}

}  // namespace flatshard
