#pragma once
// Runs tasks on the CPU's threads. The caller splits the work into tasks independently of the number of
// threads, and a task writes only its own output. The bits of a result therefore do not depend on the thread
// count.

#include <cstdint>
#include <type_traits>

namespace flatshard {

int usable_processors();  // number of processors that this process may run on

// The number of threads that run tasks, initially usable_processors(). It must not be changed while work
// runs.
int thread_count();
void set_thread_count(int count);

// Makes the calling thread run its later tasks alone, without the pool. Background threads call it.
void use_one_thread_here();

namespace detail {
using TaskFunction = void (*)(void* closure, int64_t task, int worker);
void run_tasks(int64_t tasks, TaskFunction function, void* closure);
}  // namespace detail

// Calls work(task) or work(task, worker) for every task in [0, tasks), each once, in no particular order;
// worker is in [0, thread_count()) and no two running tasks share one: index per-thread scratch with it. Work
// must not throw. Nested calls, and calls while another thread's tasks run, run on the calling thread, as
// worker 0 of their own.
template <class Work>
void parallel_for(int64_t tasks, Work&& work) {
  using W = std::remove_reference_t<Work>;
  const auto function = [](void* closure, int64_t task, [[maybe_unused]] int worker) {
    W& w = *static_cast<W*>(closure);
    if constexpr (std::is_invocable_v<W&, int64_t, int>)
      w(task, worker);
    else
      w(task);
  };
  using Plain = std::remove_const_t<W>;
  detail::run_tasks(tasks, function, const_cast<Plain*>(&work));
}

// Makes parallel_blocks cut no block larger than `limit` during its lifetime, for tests: results must not
// change.
class ScopedBlockLimit {
 public:
  explicit ScopedBlockLimit(int64_t limit) : before_(block_limit) { block_limit = limit; }
  ~ScopedBlockLimit() { block_limit = before_; }
  ScopedBlockLimit(const ScopedBlockLimit&) = delete;
  ScopedBlockLimit& operator=(const ScopedBlockLimit&) = delete;

 private:
  template <class Work>
  friend void parallel_blocks(int64_t n, int64_t block, Work&& work);
  static inline int64_t block_limit = INT64_MAX;
  int64_t before_;
};

// parallel_for over [0, n) in blocks: work(begin, end). A result must not depend on where blocks are cut.
template <class Work>
void parallel_blocks(int64_t n, int64_t block, Work&& work) {
  block = block < ScopedBlockLimit::block_limit ? block : ScopedBlockLimit::block_limit;
  parallel_for((n + block - 1) / block, [&](int64_t task) {
    const int64_t begin = task * block;
    work(begin, begin + block < n ? begin + block : n);
  });
}

}  // namespace flatshard
