#pragma once
// A thread that does the work of one CPU stream, in order, beside the thread that gives it.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace flatshard {

class StreamWorker {
 public:
  StreamWorker();
  // Does what the streams' events need, drops all other work, and ends the thread.
  ~StreamWorker();
  StreamWorker(const StreamWorker&) = delete;
  StreamWorker& operator=(const StreamWorker&) = delete;

  // An item that throws makes the worker skip all further ones until sync().
  void push(std::function<void()> work);
  // An item that is done in any case: a record or a wait, on which other streams stand.
  void push_always(std::function<void()> work);
  // Blocks until everything is done; throws what an item threw.
  void sync();
  // Throws what an item threw, if one did.
  void rethrow();

 private:
  struct Item {
    std::function<void()> work;
    bool always;
  };
  void add(Item item);
  void serve();
  void run(const Item& item);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::exception_ptr error_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace flatshard
