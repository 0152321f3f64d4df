#pragma once
// Streams while they are captured: what they are given becomes nodes of a graph, in place of work. A graph is
// launched on queues of its own, one for each stream that was captured, so that its work runs in every order
// that its edges allow, and what they leave open is a race.

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/ptx_vm/streams.h"

namespace flatshard::ptx_vm {

struct Node {
  std::string what;
  std::function<void(Activity&)> run;
  size_t line;                // which of the captured streams it is of
  std::vector<size_t> after;  // earlier nodes
};

struct CapturedWork {
  std::vector<Node> nodes{};
  std::vector<WorkRole> lines{};  // the roles of the captured streams
};

struct Capture {
  Queue* origin = nullptr;
  bool is_broken = false;  // by a call that cannot be captured
  bool is_over = false;
  std::thread::id thread = std::this_thread::get_id();  // that began it
  std::vector<Queue*> queues{};                         // in the order of the lines
  CapturedWork work{};
};

void begin_capture(Queue& queue);
CapturedWork end_capture(Queue& queue);
void add_node(Queue& queue, std::string what, std::function<void(Activity&)> run);
// The queue goes on behind that place; it is captured as well from now on.
void follow(Queue& queue, const CapturedPoint& point);

// Refuse what cannot be captured, and the capture is lost: a call that is about a captured queue itself; a
// wait for an event that was recorded outside of the capture; a wait of the host for all streams; work of the
// default stream, which captured ones that block would wait for; memory made or given back by the thread that
// captures, for which the device may have to stand still.
void refuse_captured(const Queue& queue, const char* call);
void refuse_from_outside(const Queue& queue);
void refuse_while_capturing();
void refuse_default_stream();
void refuse_memory_call(const char* call);

// A graph that can be launched.
class GraphLaunches {
 public:
  explicit GraphLaunches(CapturedWork work);
  ~GraphLaunches();
  GraphLaunches(const GraphLaunches&) = delete;
  GraphLaunches& operator=(const GraphLaunches&) = delete;

  void launch(Queue& queue);

 private:
  CapturedWork work_;
  std::vector<Queue*> queues_;  // by line
};

}  // namespace flatshard::ptx_vm
