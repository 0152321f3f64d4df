#include "comm/mpi_meeting.h"

#include <algorithm>
#include <sys/prctl.h>
#include <thread>

#include "runtime/check.h"

namespace flatshard {
namespace {

// A rank polls for as long as falling asleep would take, then sleeps for a quarter of the time it has waited.
constexpr std::chrono::microseconds kPolling{20}, kLongestSleep{100};

// Linux wakes a thread up to 50 us late unless the thread asks for less.
void wake_in_time() {
  constexpr unsigned long kNanoseconds = 1000;
  [[maybe_unused]] thread_local const int once = prctl(PR_SET_TIMERSLACK, kNanoseconds);
}

}  // namespace

bool complete(MPI_Request& request, std::chrono::nanoseconds within) {
  wake_in_time();
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
