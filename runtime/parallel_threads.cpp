// parallel.h over a pool of std::threads, for builds without OpenMP. Unlike an OpenMP library, the pool's
// synchronisation is visible to the thread sanitizer, so the tsan preset builds with it.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/check.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

thread_local bool in_task = false;

// The calling thread is worker 0; the pool's threads are workers 1 and up. One call runs at a time.
class Pool {
 public:
  explicit Pool(int count) {
    for (int worker = 1; worker < count; ++worker) threads_.emplace_back([this, worker] { serve(worker); });
  }

  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    start_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  void run(int64_t tasks, detail::TaskFunction function, void* context) {
    {
      const std::lock_guard lock(mutex_);
      tasks_ = tasks;
      function_ = function;
      context_ = context;
      next_ = 0;
      busy_ = static_cast<int>(threads_.size());
      ++round_;
    }
    start_.notify_all();
    work(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return busy_ == 0; });
  }

 private:
  void work(int worker) {
    in_task = true;
    for (int64_t task = next_++; task < tasks_; task = next_++) function_(context_, task, worker);
    in_task = false;
  }

  void serve(int worker) {
    int64_t seen = 0;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        start_.wait(lock, [&] { return stopping_ || round_ != seen; });
        if (stopping_) return;
        seen = round_;
      }
      work(worker);
      const std::lock_guard lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable start_, done_;
  std::vector<std::thread> threads_;
  std::atomic<int64_t> next_{0};
  int64_t tasks_ = 0, round_ = 0;
  detail::TaskFunction function_ = nullptr;
  void* context_ = nullptr;
  int busy_ = 0;
  bool stopping_ = false;
};

std::unique_ptr<Pool>& pool() {
  static std::unique_ptr<Pool> instance =
      std::make_unique<Pool>(std::max(1u, std::thread::hardware_concurrency()));
  return instance;
}

}  // namespace

int thread_count() { return pool()->size(); }

void set_thread_count(int count) {
  check(count >= 1, "thread count is ", count, ", must be at least 1");
  if (count != thread_count()) pool() = std::make_unique<Pool>(count);
}

void use_one_thread_here() { in_task = true; }

void detail::run_tasks(int64_t tasks, TaskFunction function, void* context) {
  if (in_task || tasks == 1 || thread_count() == 1) {
    for (int64_t task = 0; task < tasks; ++task) function(context, task, 0);
    return;
  }
  pool()->run(tasks, function, context);
}

}  // namespace flatshard
