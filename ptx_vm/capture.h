#pragma once
// Stream capture: enqueued work becomes nodes of a graph. A graph is launched on its own queues, one per
// captured stream, so that its work can run in every order that its edges allow; unordered conflicting
// accesses are races.

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "ptx_vm/streams.h"

namespace flatshard::ptx_vm {

struct Node {
  std::string what;
  std::function<void(Activity&)> run;
  size_t line;                // the index of its captured stream
  std::vector<size_t> after;  // earlier nodes
};

struct CapturedWork {
  std::vector<Node> nodes{};
  std::vector<WorkRole> lines{};  // the roles of the captured streams
};

struct Capture {
  Queue* origin = nullptr;
  bool is_broken = false;  // invalidated by a call that cannot be captured
  bool is_over = false;
  std::thread::id thread = std::this_thread::get_id();  // the thread that began it
  std::vector<Queue*> queues{};                         // sorted like the lines
  CapturedWork work{};
};

void begin_capture(Queue& queue);
CapturedWork end_capture(Queue& queue);
void add_node(Queue& queue, std::string what, std::function<void(Activity&)> run);
// Makes the queue wait for that point and join the capture.
void follow(Queue& queue, const CapturedPoint& point);

// Reject calls that cannot be captured and invalidate the capture: calls about a captured queue itself; waits
// for events recorded outside the capture; host waits for all streams; work on the default stream, for which
// captured blocking streams would wait; allocations and frees by the capturing thread, which may synchronize
// the device.
void refuse_captured(const Queue& queue, const char* call);
void refuse_from_outside(const Queue& queue);
void refuse_while_capturing();
void refuse_default_stream();
void refuse_memory_call(const char* call);

// An executable graph, and the queues on which it is launched.
class GraphLaunches {
 public:
  explicit GraphLaunches(CapturedWork work);
  ~GraphLaunches();
  GraphLaunches(const GraphLaunches&) = delete;
  GraphLaunches& operator=(const GraphLaunches&) = delete;

  void launch(Queue& queue);

 private:
  CapturedWork work_;
  std::vector<Queue*> queues_;  // one queue per line
};

}  // namespace flatshard::ptx_vm
