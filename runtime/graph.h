#pragma once
// A CUDA graph: the work of a set of streams, captured once and launched any number of times with one call.
// The graph keeps the addresses, shapes and scalar arguments of the capture.
//
// A launch is one operation of the whole set: it runs after all work enqueued on any of the set's streams
// before it, and all work enqueued later runs after it. Waiting inside the graph for an event recorded
// outside it, or the reverse, is therefore unnecessary and has no effect.
//
// A graph may contain calls of NCCL. All ranks of a communicator must then capture the same calls and make
// the same launches, and the graph must be destroyed before the communicator, which would wait for that
// forever.

#include <functional>
#include <vector>

#include "runtime/stream.h"

namespace flatshard {

class Graph {
 public:
  // Captures the work that `work` enqueues on the streams; nothing runs. `work` must neither synchronize nor
  // enqueue host work.
  Graph(StreamSet& set, const std::function<void()>& work);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void launch();

 private:
  StreamSet* set_;
  void* native_ = nullptr;
  std::vector<Event> before_;  // one event for each other stream: its position at a launch
  Event done_;
};

}  // namespace flatshard
