#include "ptx_vm/async.h"

#include <algorithm>
#include <utility>

#include "ptx_vm/grid.h"
#include "ptx_vm/ptx_vm.h"

namespace flatshard::ptx_vm {

namespace {

AsyncHandle make_work(Warp& issuer, int lane, std::function<void(Warp& actor)> run) {
  auto work = std::make_shared<AsyncWork>();
  Warp& actor = work->actor;
  actor.is_async = true;
  actor.block = issuer.block;
  actor.index = issuer.index;
  actor.current = issuer.current;
  actor.active = actor.live = 1u << lane;
  actor.known = issuer.known;
  actor.known_elsewhere = issuer.known_elsewhere;
  work->issuer = issuer.serial;
  work->lane = lane;
  work->run = std::move(run);
  // Later actions of the issuer did not happen before the work.
  issuer.advance();
  return work;
}

}  // namespace

AsyncHandle AsyncQueue::issue(Warp& issuer, int lane, std::function<void(Warp& actor)> run,
                              AsyncHandle after) {
  AsyncHandle work = make_work(issuer, lane, std::move(run));
  work->actor.serial = take_serials(1);
  work->after = std::move(after);
  all_.push_back(work);
  return enqueue(std::move(work));
}

AsyncHandle AsyncQueue::issue(Warp& issuer, int lane, std::function<void(Warp& actor)> run, AsyncLine& line) {
  AsyncHandle work = make_work(issuer, lane, std::move(run));
  if (line.serial == 0) {
    line.serial = take_serials(1);
    all_.push_back(work);
  }
  work->actor.serial = line.serial;
  work->actor.async_time = ++line.issued;
  work->after = std::exchange(line.last, work);
  return enqueue(std::move(work));
}

AsyncHandle AsyncQueue::enqueue(AsyncHandle work) {
  if (options().async == AsyncTiming::early)
    finish(work);
  else
    pending_.push_back(work);
  return work;
}

void AsyncQueue::finish(AsyncHandle work) {
  if (work->is_done) return;
  if (work->after) finish(work->after);
  work->after = nullptr;
  work->is_done = true;
  std::erase(pending_, work);
  work->run(work->actor);
  work->run = nullptr;
  work->actor.known_elsewhere = {};  // grows with the works before it, and is no longer used
  Launch& launch = *work->actor.block->launch;
  ++launch.progress;
}

bool AsyncQueue::run_one() {
  if (pending_.empty()) return false;
  const bool any = options().async == AsyncTiming::random;
  const AsyncHandle work = pending_[any ? random_() % pending_.size() : 0];
  finish(work);
  return true;
}

void AsyncQueue::maybe_run() {
  if (!pending_.empty() && happens(4)) run_one();
}

bool AsyncQueue::happens(uint32_t one_in) {
  return options().async == AsyncTiming::random && random_() % one_in == 0;
}

void AsyncQueue::finish_of(const Block& block) {
  const std::vector<AsyncHandle> all = pending_;
  for (const AsyncHandle& work : all)
    if (work->actor.block == &block) finish(work);
}

const AsyncWork* AsyncQueue::find(uint32_t serial) const {
  const auto at = std::lower_bound(all_.begin(), all_.end(), serial, [](const AsyncHandle& work, uint32_t s) {
    return work->actor.serial < s;
  });
  return at == all_.end() || (*at)->actor.serial != serial ? nullptr : at->get();
}

void learn(Warp& warp, const AsyncWork& work) { learn(warp, {{work.actor.serial, work.actor.time()}}); }

}  // namespace flatshard::ptx_vm
