#pragma once
// A thread that runs the work of one CPU stream in order, concurrently with the thread that enqueues it.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace flatshard {

class StreamWorker {
 public:
  // The work computes on this thread alone, or as worker 0 of the run's threads (parallel.h).
  explicit StreamWorker(bool one_thread = true);
  // Runs the remaining records and waits, drops all other work, and joins the thread.
  ~StreamWorker();
  StreamWorker(const StreamWorker&) = delete;
  StreamWorker& operator=(const StreamWorker&) = delete;

  // After an item throws, later items are skipped until sync().
  void push(std::function<void()> work);
  // An item that is never skipped: a record or a wait, on which other streams depend.
  void push_always(std::function<void()> work);
  // Blocks until all items are done; rethrows the first exception.
  void sync();
  // Rethrows the first exception, if there is one.
  void rethrow();

 private:
  struct Item {
    std::function<void()> work;
    bool always;
  };
  void add(Item item);
  void serve(bool one_thread);
  void run(const Item& item);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::exception_ptr error_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace flatshard
