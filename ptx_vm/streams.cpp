#include "ptx_vm/streams.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "ptx_vm/capture.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {

std::string name_of(const Queue& queue) {
  const std::string name = queue.number == 0 ? "the default stream" : str("stream ", queue.number);
  return name + (queue.role == WorkRole::comm ? " (comm)" : " (compute)");
}

Streams::Streams() {
  queues_.push_back(std::make_unique<Queue>());
  queues_[0]->is_blocking = true;
}

// The index of a destroyed stream is reused once nothing can conflict with its operations.
Queue& Streams::create(bool is_blocking, int priority, WorkRole role) {
  auto fresh = std::make_unique<Queue>();
  fresh->number = ++made_;
  fresh->priority = priority;
  fresh->is_blocking = is_blocking;
  fresh->role = role;
  for (size_t i = 1; i < queues_.size(); ++i) {
    Queue& old = *queues_[i];
    if (old.is_alive || !old.waiting.empty() || old.has_ended || !covers(host_, old.milestone().point))
      continue;
    fresh->index = old.index;
    fresh->given = old.given;
    fresh->done = old.done.load();
    fresh->clock = old.clock;
    return *(queues_[i] = std::move(fresh));
  }
  fresh->index = static_cast<uint32_t>(queues_.size());
  return *queues_.emplace_back(std::move(fresh));
}

void Streams::destroy(Queue& queue) { queue.is_alive = false; }

Queue* Streams::find(const void* handle) {
  if (!handle) return queues_[0].get();
  for (const auto& queue : queues_)
    if (queue.get() == handle && queue->is_alive) return queue.get();
  return nullptr;
}

void Streams::follow(Operation& op, const Milestone& milestone) {
  merge(op.clock, milestone.clock);
  if (milestone.point.stream != op.point.stream && !is_done(milestone)) op.after.push_back(milestone.point);
}

Milestone Streams::enqueue(Queue& queue, std::string what, std::function<void(Activity&)> run) {
  const Visit visit(*this);
  if (queue.index == 0) refuse_default_stream();
  if (queue.captured.capture) {
    add_node(queue, std::move(what), std::move(run));
    return {};
  }
  Operation op{.what = std::move(what), .run = std::move(run)};
  op.point = {queue.index, queue.given + 1};
  if (queue.is_blocking)
    for (const auto& other : queues_)
      if (other->is_blocking && other->index != queue.index && (queue.index == 0 || other->index == 0))
        follow(op, other->milestone());
  return push(queue, std::move(op));
}

void Streams::wait(Queue& queue, const Milestone& milestone) {
  const Visit visit(*this);
  Operation op{.what = "a wait"};
  op.point = {queue.index, queue.given + 1};
  follow(op, milestone);
  push(queue, std::move(op));
}

Milestone Streams::push(Queue& queue, Operation op) {
  merge(op.clock, queue.clock);
  merge(op.clock, host_);
  put(op.clock, op.point);
  queue.clock = op.clock;
  queue.given = op.point.position;
  queue.waiting.push_back(std::move(op));
  const Milestone milestone = queue.milestone();
  switch (options().stream_order) {
    case WorkOrder::in_order:
      while (!is_done(milestone) && !is_in_flight(queue)) run_towards(milestone.point);
      break;
    case WorkOrder::comm_late:
      break;
    case WorkOrder::comm_early:
      while (Queue* comm = ready_comm()) run_front(*comm);
      break;
    case WorkOrder::random:
      while (random() % 2)
        if (Queue* any = any_ready()) run_front(*any);
      break;
  }
  return milestone;
}

bool Streams::is_in_flight(Queue& queue) {
  if (!queue.has_ended) return false;
  if (!queue.has_ended()) return true;
  queue.has_ended = nullptr;
  ++queue.done;
  return false;
}

bool Streams::is_reached(Point point) {
  Queue& queue = *queues_[point.stream];
  is_in_flight(queue);
  return queue.done >= point.position;
}

// A wait refers to an earlier operation, so streams cannot wait for each other in a cycle.
const Point* Streams::blocker(const Queue& queue) {
  for (const Point& p : queue.waiting.front().after)
    if (!is_reached(p)) return &p;
  return nullptr;
}

bool Streams::can_run(Queue& queue) {
  return !queue.waiting.empty() && !is_in_flight(queue) && !blocker(queue);
}

Queue* Streams::ready_comm() {
  for (const auto& queue : queues_)
    if (queue->role == WorkRole::comm && can_run(*queue)) return queue.get();
  return nullptr;
}

uint64_t Streams::random() {
  if (std::exchange(is_idle_, false)) random_.seed(options().seed);
  return random_();
}

Queue* Streams::any_ready() {
  std::vector<Queue*> ready;
  for (const auto& queue : queues_)
    if (can_run(*queue)) ready.push_back(queue.get());
  return ready.empty() ? nullptr : ready[random() % ready.size()];
}

Queue* Streams::first_ready() {
  if (Queue* comm = ready_comm()) return comm;
  for (const auto& queue : queues_)
    if (can_run(*queue)) return queue.get();
  return nullptr;
}

// The queue whose next operation brings the host closer to this point. Null: only other ranks do.
Queue* Streams::next_towards(Point point) {
  if (options().stream_order == WorkOrder::comm_early)
    if (Queue* comm = ready_comm()) return comm;
  if (options().stream_order == WorkOrder::random) return any_ready();
  for (;;) {
    Queue& queue = *queues_[point.stream];
    if (is_in_flight(queue) || queue.waiting.empty()) return nullptr;
    const Point* other = blocker(queue);
    if (!other) return &queue;
    point = *other;
  }
}

// Other ranks may wait for anything that can run here, so it does while this one waits for them.
void Streams::run_towards(Point point) {
  constexpr std::chrono::microseconds kBetweenPolls{20};
  Queue* next = next_towards(point);
  if (!next) next = first_ready();
  if (next)
    run_front(*next);
  else
    std::this_thread::sleep_for(kBetweenPolls);
}

void Streams::run_front(Queue& queue) {
  const Operation op = std::move(queue.waiting.front());
  queue.waiting.pop_front();
  ++queue.done;
  if (!op.run) return;
  Activity self{.point = op.point, .clock = op.clock, .what = str(op.what, " on ", name_of(queue))};
  running_ = &queue;
  op.run(self);
}

void Streams::stay_until(std::function<bool()> has_ended) {
  --running_->done;
  running_->has_ended = std::move(has_ended);
}

void Streams::finish(const Milestone& milestone) {
  const Visit visit(*this);
  while (!is_done(milestone)) run_towards(milestone.point);
  if (options().stream_order == WorkOrder::comm_early)
    while (Queue* comm = ready_comm()) run_front(*comm);
  host_learns(milestone.clock);
}

void Streams::finish_all() {
  const Visit visit(*this);
  Clock all;
  for (const WorkRole role :
       {WorkRole::compute, WorkRole::comm})  // communication last, unless an operation waits for it
    for (const auto& queue : queues_) {
      if (queue->role == role)
        while (!is_done(queue->milestone())) run_towards({queue->index, queue->given});
      merge(all, queue->clock);
    }
  host_learns(all);
}

bool Streams::poll(const Milestone& milestone) {
  if (!is_host_thread()) return queues_[milestone.point.stream]->done >= milestone.point.position;
  const Visit visit(*this);
  if (!is_done(milestone)) {
    run_towards(milestone.point);
    return false;
  }
  host_learns(milestone.clock);
  return true;
}

void Streams::host_learns(const Clock& clock) {
  merge(host_, clock);
  sources_.forget(host_);
  if (std::any_of(queues_.begin(), queues_.end(),
                  [](const auto& queue) { return !queue->waiting.empty() || queue->has_ended; }))
    return;  // pending operations may conflict with what the host has waited for
  timeline().forget(host_);
  is_idle_ = true;
}

void Streams::drop_all() {
  Clock all;
  for (const auto& queue : queues_) {
    queue->waiting.clear();
    queue->has_ended = nullptr;
    queue->done = queue->given;
    merge(all, queue->clock);
  }
  host_learns(all);
  timeline().forget(host_);
}

void Streams::run_host_function(const std::function<void()>& work) {
  runs_host_function_ = true;
  work();
  runs_host_function_ = false;
}

Streams& streams() {
  static Streams* const only = new Streams;
  return *only;
}

}  // namespace flatshard::ptx_vm
