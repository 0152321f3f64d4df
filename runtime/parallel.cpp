#include "runtime/parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "runtime/check.h"

namespace flatshard {
namespace {

thread_local bool runs_its_tasks_itself = false;

// Requests short time slices for the calling thread and the threads that it starts later. Beside other
// programs a thread that wakes would otherwise wait milliseconds for a processor, and the threads that share
// its work would wait with it. Kernels before 6.12 ignore the request.
void take_short_turns() {
  struct {  // struct sched_attr, version 0; glibc declares it from 2.41 on
    uint32_t size = sizeof *this, policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = 0, deadline = 0, period = 0;
  } attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;  // the user has chosen a scheduling class
  attributes.runtime = 100'000;                  // nanoseconds; the minimum
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

// Blocks until `value` is no longer `old`. The next call of a step comes within microseconds, sooner than a
// sleeping thread wakes; spinning any longer takes processor time from the thread that is awaited.
void wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kAwake{50};
  for (const auto begin = Clock::now(); Clock::now() - begin < kAwake;)
    if (value != old) return;
  value.wait(old);
}

// The calling thread is worker 0; the pool's threads are workers 1 and up.
class Pool {
 public:
  ~Pool() { stop(); }

  int size() const { return size_; }

  void resize(int size) {
    const std::lock_guard lock(caller_);
    take_short_turns();
    if (size == size_) return;
    stop();
    size_ = size;
  }

  // Runs the tasks and returns true; returns false at once while the pool runs the tasks of another thread.
  bool run(int64_t tasks, detail::TaskFunction function, void* closure) {
    const std::unique_lock lock(caller_, std::try_to_lock);
    if (!lock) return false;
    if (threads_.empty()) start();
    for (int i = 0; i < size_; ++i) {
      shares_[i].next = tasks * i / size_;
      shares_[i].end = tasks * (i + 1) / size_;
    }
    function_ = function;
    closure_ = closure;
    gate_ = kOpen;
    ++calls_;
    calls_.notify_all();
    work(0);
    gate_ &= ~kOpen;
    // A thread that has not entered yet finds the gate closed and need not be awaited.
    for (uint32_t inside = gate_; inside != 0; inside = gate_) wait_for_change(gate_, inside);
    return true;
  }

 private:
  static constexpr uint32_t kOpen = 1u << 31;

  // Neighbouring tasks, which a worker runs in order. Two threads that write alternating pieces of an array
  // reach as little as 60 % of the bandwidth of two threads that write one half each.
  struct alignas(64) Share {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };

  void start() {
    take_short_turns();
    stopping_ = false;
    shares_ = std::vector<Share>(size_);
    for (int worker = 1; worker < size_; ++worker)
      threads_.emplace_back([this, worker, seen = calls_.load()] { serve(worker, seen); });
  }

  void stop() {
    stopping_ = true;
    ++calls_;
    calls_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void serve(int worker, uint32_t seen) {
    for (;;) {
      wait_for_change(calls_, seen);
      seen = calls_;
      if (stopping_) return;
      if (!enter()) continue;
      work(worker);
      if (--gate_ == 0) gate_.notify_one();
    }
  }

  bool enter() {
    for (uint32_t gate = gate_; (gate & kOpen) != 0;)
      if (gate_.compare_exchange_weak(gate, gate + 1)) return true;
    return false;
  }

  // Runs the worker's own share, then the remaining tasks of the others.
  void work(int worker) {
    runs_its_tasks_itself = true;
    for (int i = 0; i < size_; ++i) {
      Share& share = shares_[(worker + i) % size_];
      while (share.next < share.end)
        if (const int64_t task = share.next++; task < share.end) function_(closure_, task, worker);
    }
    runs_its_tasks_itself = false;
  }

  std::mutex caller_;  // held by the thread whose tasks run
  std::vector<std::thread> threads_;
  std::atomic<int> size_{usable_processors()};
  std::atomic<bool> stopping_{false};
  std::vector<Share> shares_;  // one for each worker
  detail::TaskFunction function_ = nullptr;
  void* closure_ = nullptr;
  alignas(64) std::atomic<uint32_t> calls_{0};  // calls of run() so far; threads without work wait on it
  alignas(64) std::atomic<uint32_t> gate_{0};   // kOpen while there are tasks, plus the threads inside
};

Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int thread_count() { return pool().size(); }

void set_thread_count(int count) {
  check(count >= 1, "thread count is ", count, ", must be at least 1");
  pool().resize(count);
}

void use_one_thread_here() { runs_its_tasks_itself = true; }

void detail::run_tasks(int64_t tasks, TaskFunction function, void* closure) {
  if (tasks > 1 && !runs_its_tasks_itself && pool().size() > 1 && pool().run(tasks, function, closure))
    return;
  for (int64_t task = 0; task < tasks; ++task) function(closure, task, 0);
}

}  // namespace flatshard
