#include "runtime/host_work.h"

namespace flatshard {

HostWork::HostWork() : thread_([this] { serve(); }) {}

HostWork::~HostWork() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostWork::run(const std::function<void()>& work) {
  const std::lock_guard turn(callers_);
  std::unique_lock lock(mutex_);
  work_ = &work;
  changed_.notify_all();
  changed_.wait(lock, [&] { return work_ == nullptr; });
}

void HostWork::serve() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || work_; });
    if (!work_) return;
    lock.unlock();
    (*work_)();
    lock.lock();
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace flatshard
