#pragma once
// The thread for host work of CUDA streams. A driver calls back on a thread of its own, which belongs neither
// to the run nor to its limits; it hands the work over to this thread and sleeps until it is done. The work
// splits its tasks over the run's threads (parallel.h), of which this one is worker 0.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace flatshard {

class HostWork {
 public:
  HostWork();
  ~HostWork();
  HostWork(const HostWork&) = delete;
  HostWork& operator=(const HostWork&) = delete;

  // Returns when the work has run, after the work of earlier callers. An exception from it ends the program.
  void run(const std::function<void()>& work);

 private:
  void serve() noexcept;

  std::mutex callers_;  // held by the caller whose work runs
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace flatshard
