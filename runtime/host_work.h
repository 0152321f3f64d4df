#pragma once
// The thread for host work of CUDA streams. A driver calls back on a thread of its own, which belongs neither
// to the run nor to its limits; it hands the work over to this thread and sleeps until it is done. The work
// splits its tasks over the run's threads (parallel.h), of which this one is worker 0.

#include <mutex>

#include "runtime/stream_worker.h"

namespace flatshard {

class HostWork {
 public:
  // Returns when the work has run, after the work of earlier callers. An exception from it ends the program.
  void run(const std::function<void()>& work) noexcept {
    const std::lock_guard turn(callers_);
    worker_.push(work);
    worker_.sync();
  }

 private:
  std::mutex callers_;  // held by the caller whose work runs
  StreamWorker worker_{/*one_thread=*/false};
};

}  // namespace flatshard
