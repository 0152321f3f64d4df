#include "runtime/parallel.h"

#include <atomic>
#include <ctime>
#include <thread>
#include <vector>

#include "tests/test.h"

using namespace flatshard;

namespace {

struct ScopedThreads {
  explicit ScopedThreads(int count) : before(thread_count()) { set_thread_count(count); }
  ~ScopedThreads() { set_thread_count(before); }
  int before;
};

}  // namespace

TEST_CASE("every task runs exactly once, on a worker that exists") {
  for (const int threads : {1, 2, 4}) {
    const ScopedThreads scope(threads);
    std::vector<int> runs(1000);
    std::vector<int> workers(1000, -1);
    parallel_for(1000, [&](int64_t task, int worker) {
      ++runs[task];
      workers[task] = worker;
    });
    for (int i = 0; i < 1000; ++i) {
      CHECK(runs[i] == 1);
      CHECK((workers[i] >= 0 && workers[i] < threads));
    }
  }
}

TEST_CASE("no two running tasks share a worker") {
  const ScopedThreads scope(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared = false;
  parallel_for(2000, [&](int64_t, int worker) {
    if (++inside[worker] != 1) shared = true;
    --inside[worker];
  });
  CHECK_FALSE(shared);
}

TEST_CASE("nested parallel work runs where it is called") {
  const ScopedThreads scope(2);
  std::vector<int64_t> sums(8);
  parallel_for(8, [&](int64_t task) { parallel_for(10, [&](int64_t i) { sums[task] += i; }); });
  for (const int64_t sum : sums) CHECK(sum == 45);
}

TEST_CASE("two threads may call concurrently, each with its own tasks") {
  const ScopedThreads scope(2);
  const auto sums = [] {
    for (int call = 0; call < 500; ++call) {
      std::vector<int> runs(5);
      parallel_for(5, [&](int64_t task) { ++runs[task]; });
      if (runs != std::vector<int>(5, 1)) return false;
    }
    return true;
  };
  bool right = false;
  std::thread other([&] { right = sums(); });
  CHECK(sums());
  other.join();
  CHECK(right);
}

TEST_CASE("threads without work leave the processor to other programs") {
  constexpr int kCalls = 100;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 2'000'000};
  const ScopedThreads scope(2);
  const auto seconds = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double before = seconds();
  for (int call = 0; call < kCalls; ++call) {
    parallel_for(2, [](int64_t) {});
    nanosleep(&kPause, nullptr);
  }
  CHECK(seconds() - before < 0.5 * kCalls * 1e-9 * static_cast<double>(kPause.tv_nsec));
}

TEST_CASE("blocks cover the range without overlap, also under a block limit") {
  for (const int64_t limit : {INT64_MAX, int64_t{3}}) {
    const ScopedBlockLimit scope(limit);
    std::vector<int> covered(103);
    parallel_blocks(103, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++covered[i];
    });
    for (const int count : covered) CHECK(count == 1);
  }
  parallel_blocks(0, 10, [&](int64_t, int64_t) { FAIL("no block in an empty range"); });
}

TEST_CASE("a thread count below one is refused") {
  CHECK(test::error_of([] { set_thread_count(0); }) == "thread count is 0, must be at least 1");
}
