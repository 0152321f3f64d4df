#include "runtime/host_work.h"

#include <atomic>
#include <set>
#include <vector>

#include "runtime/parallel.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("host work runs on its own thread and the run's threads, not on the caller's") {
  const int threads = thread_count();
  set_thread_count(3);
  HostWork host;
  std::mutex mutex;
  std::set<std::thread::id> used;
  std::atomic<int> inside = 0;
  std::vector<int> workers;
  host.run([&] {
    parallel_for(64, [&](int64_t, int worker) {
      ++inside;
      while (inside < 2) std::this_thread::yield();  // so that two threads take part
      const std::lock_guard lock(mutex);
      used.insert(std::this_thread::get_id());
      workers.push_back(worker);
    });
  });
  CHECK(workers.size() == 64);
  CHECK(used.size() >= 2);
  CHECK(used.size() <= 3);
  CHECK_FALSE(used.contains(std::this_thread::get_id()));
  set_thread_count(threads);
}

TEST_CASE("host work of several callers runs one at a time, and each waits for its own") {
  HostWork host;
  std::atomic<int> inside = 0, most = 0, done = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        int mine = 0;
        host.run([&] {
          most = std::max(most.load(), ++inside);
          mine = 1;
          --inside;
        });
        done += mine;
      }
    });
  for (std::thread& caller : callers) caller.join();
  CHECK(done == 200);
  CHECK(most == 1);
}
