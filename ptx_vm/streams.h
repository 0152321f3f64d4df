#pragma once
// Stream queues. An operation runs atomically at a time that Options::stream_order selects. An operation that
// exchanges data with other ranks only starts then, and ends when the other ranks have done their part. A
// Finding that an operation throws propagates from the CUDA call that ran it. There is one host thread; other
// threads may only ask whether a milestone is reached.

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ptx_vm/host_sources.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/timeline.h"

namespace flatshard::ptx_vm {

// A position in a stream, and the operations that happened before it.
struct Milestone {
  Point point{};
  Clock clock{};
};

// A position in a capture (capture.h).
struct Capture;
struct CapturedPoint {
  std::shared_ptr<Capture> capture{};
  std::vector<size_t> nodes{};
};

struct Operation {
  Point point{};
  Clock clock{};               // operations that happened before it, including itself
  std::vector<Point> after{};  // points of other streams that must precede it
  std::string what;            // a description such as "copy of 16 bytes"
  // Null for a wait. The argument is the activity of this operation.
  std::function<void(Activity& self)> run{};
};

struct Queue {
  uint32_t index = 0;  // index of the stream, and of its entry in a Clock
  int number = 0;      // number in reports: 0 is the default stream
  int priority = 0;
  bool is_blocking = false;  // synchronizes with the default stream
  WorkRole role = WorkRole::compute;
  bool is_alive = true;
  uint32_t given = 0;             // enqueued operations
  std::atomic<uint32_t> done{0};  // finished operations
  Clock clock{};                  // clock of the last enqueued operation
  std::deque<Operation> waiting{};
  // Whether the operation in flight, the next after the finished ones, has ended. Null: no operation is in
  // flight.
  std::function<bool()> has_ended{};
  CapturedPoint captured{};  // its position in a capture

  Milestone milestone() const { return {{index, given}, clock}; }
};

std::string name_of(const Queue& queue);  // a name such as "stream 2 (comm)"

class Streams {
 public:
  Streams();

  Queue& create(bool is_blocking, int priority, WorkRole role);
  void destroy(Queue& queue);       // enqueued operations still run
  Queue* find(const void* handle);  // a handle is the address of a Queue; null: the default stream

  // Enqueues an operation and, depending on the order, runs it. On a captured queue it runs at each launch of
  // the graph, so `run` must be repeatable.
  Milestone enqueue(Queue& queue, std::string what, std::function<void(Activity&)> run);
  void wait(Queue& queue, const Milestone& milestone);
  bool is_done(const Milestone& milestone) { return is_reached(milestone.point); }

  // Makes the host wait for the milestone.
  void finish(const Milestone& milestone);
  void finish_all();
  // Returns whether the milestone is reached. If not, runs one operation towards it, so that repeated polling
  // terminates.
  bool poll(const Milestone& milestone);
  // Called by a running operation: it stays in flight until `has_ended` returns true.
  void stay_until(std::function<bool()> has_ended);
  // Drops all pending operations, after a finding.
  void drop_all();

  // Registers pinned host memory that the copy with this milestone reads.
  void watch(const Milestone& milestone, const void* source, uint64_t bytes, const std::string& what) {
    sources_.add(milestone.point, source, bytes, what);
  }
  bool is_host_thread() const { return std::this_thread::get_id() == host_thread_; }
  bool runs_host_function() const { return runs_host_function_; }
  void run_host_function(const std::function<void()>& work);

 private:
  // Created by every CUDA function: a finding if the host has modified memory that pending copies read.
  struct Visit {
    explicit Visit(Streams& s) : streams(s) { streams.sources_.check(); }
    ~Visit() { streams.sources_.look(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    Streams& streams;
  };

  void follow(Operation& op, const Milestone& milestone);
  Milestone push(Queue& queue, Operation op);
  bool is_in_flight(Queue& queue);
  bool is_reached(Point point);
  bool can_run(Queue& queue);
  const Point* blocker(const Queue& queue);
  void run_front(Queue& queue);
  Queue* next_towards(Point point);
  uint64_t random();
  Queue* ready_comm();
  Queue* any_ready();
  Queue* first_ready();
  void run_towards(Point point);
  void host_learns(const Clock& clock);

  std::vector<std::unique_ptr<Queue>> queues_;  // the first is the default stream
  Clock host_;                                  // the operations before the next enqueued operation
  HostSources sources_;
  std::mt19937_64 random_;
  std::thread::id host_thread_ = std::this_thread::get_id();
  Queue* running_ = nullptr;  // queue of the running operation
  bool is_idle_ = true;       // later operations do not depend on earlier ones
  int made_ = 0;
  bool runs_host_function_ = false;
};

Streams& streams();

}  // namespace flatshard::ptx_vm
