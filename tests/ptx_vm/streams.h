#pragma once
// The queues of streams. An operation runs whole, when the order of Options says; what it throws, a Finding,
// comes out of the call that made it run. The host is one thread.

#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/ptx_vm/host_sources.h"
#include "tests/ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/timeline.h"

namespace flatshard::ptx_vm {

// A place in the work of a stream, and what happened before it.
struct Milestone {
  Point point{};
  Clock clock{};
};

// A place in a capture (capture.h).
struct Capture;
struct CapturedPoint {
  std::shared_ptr<Capture> capture{};
  std::vector<size_t> nodes{};
};

struct Operation {
  Point point{};
  Clock clock{};               // what happens before it, itself included
  std::vector<Point> after{};  // of other streams, before it may run
  std::string what;            // "copy of 16 bytes"
  // Null for a wait. The activity is the one that it began with.
  std::function<void(Activity& self)> run{};
};

struct Queue {
  uint32_t index = 0;  // of the stream, and of its entry in a Clock
  int number = 0;      // as reports call it: 0 is the default stream
  int priority = 0;
  bool is_blocking = false;  // waits for the default stream, and that for it
  WorkRole role = WorkRole::compute;
  bool is_alive = true;
  uint32_t given = 0, done = 0;  // operations
  Clock clock{};                 // of the last one given
  std::deque<Operation> waiting{};
  CapturedPoint captured{};  // where it is captured

  Milestone milestone() const { return {{index, given}, clock}; }
};

std::string name_of(const Queue& queue);  // "stream 2 (comm)"

class Streams {
 public:
  Streams();

  Queue& create(bool is_blocking, int priority, WorkRole role);
  void destroy(Queue& queue);       // what was given still runs
  Queue* find(const void* handle);  // a handle is the address of a Queue; null is the default stream

  // The last operation given, run already where the order runs it at the call. A queue that is captured runs
  // it at each launch of its graph, so it must be good for more than one time.
  Milestone enqueue(Queue& queue, std::string what, std::function<void(Activity&)> run);
  void wait(Queue& queue, const Milestone& milestone);
  bool is_done(const Milestone& milestone) const {
    return queues_[milestone.point.stream]->done >= milestone.point.position;
  }

  // The host waits.
  void finish(const Milestone& milestone);
  void finish_all();
  // Asks whether the milestone is reached; where it is not, one operation runs, so that who asks again will
  // see it.
  bool poll(const Milestone& milestone);
  // After a finding nothing that was given runs any more.
  void drop_all();

  // A copy that was given with this milestone reads pinned memory of the host.
  void watch(const Milestone& milestone, const void* source, uint64_t bytes, const std::string& what) {
    sources_.add(milestone.point, source, bytes, what);
  }
  bool runs_host_function() const { return runs_host_function_; }
  void run_host_function(const std::function<void()>& work);

 private:
  // The host has the machine at work: what it must leave alone is as it was before, or else a finding.
  struct Visit {
    explicit Visit(Streams& s) : streams(s) { streams.sources_.check(); }
    ~Visit() { streams.sources_.look(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    Streams& streams;
  };

  void follow(Operation& op, const Milestone& milestone) const;
  Milestone push(Queue& queue, Operation op);
  bool can_run(const Queue& queue) const;
  const Point* blocker(const Queue& queue) const;
  void run_front(Queue& queue);
  Queue& next_towards(Point point);
  uint64_t random();
  Queue* ready_comm();
  Queue* any_ready();
  void run_towards(Point point);
  void host_learns(const Clock& clock);

  std::vector<std::unique_ptr<Queue>> queues_;  // the first is the default stream
  Clock host_;                                  // what happened before whatever the host gives out next
  HostSources sources_;
  std::mt19937_64 random_;
  bool is_idle_ = true;  // what follows does not depend on what went before
  int made_ = 0;
  bool runs_host_function_ = false;
};

Streams& streams();

}  // namespace flatshard::ptx_vm
