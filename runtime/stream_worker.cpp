#include "runtime/stream_worker.h"

#include <utility>

#include "runtime/parallel.h"

namespace flatshard {

StreamWorker::StreamWorker(bool one_thread) : thread_([=, this] { serve(one_thread); }) {}

StreamWorker::~StreamWorker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StreamWorker::push(std::function<void()> work) { add({std::move(work), false}); }
void StreamWorker::push_always(std::function<void()> work) { add({std::move(work), true}); }

void StreamWorker::add(Item item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  changed_.notify_all();
}

void StreamWorker::sync() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return items_.empty() && !busy_; });
  lock.unlock();
  rethrow();
}

void StreamWorker::rethrow() {
  std::unique_lock lock(mutex_);
  const std::exception_ptr error = std::exchange(error_, nullptr);
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void StreamWorker::serve(bool one_thread) {
  if (one_thread) use_one_thread_here();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !items_.empty(); });
    if (items_.empty()) return;
    const Item item = std::move(items_.front());
    items_.pop_front();
    if (item.always || !(stopping_ || error_)) {
      busy_ = true;
      lock.unlock();
      run(item);
      lock.lock();
      busy_ = false;
    }
    if (items_.empty()) changed_.notify_all();
  }
}

void StreamWorker::run(const Item& item) {
  try {
    item.work();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

}  // namespace flatshard
