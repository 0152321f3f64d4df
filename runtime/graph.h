#pragma once
// What a group's streams on a CUDA device are given, captured once and given again as often as wanted: the
// host then says it in one call. The graph keeps the addresses, shapes and numbers of the capture.
//
// It is one piece of work for the whole group: it runs behind all that the group's streams were given before,
// and they go on behind it. So an event that is recorded outside of it need not be waited for inside, nor the
// other way round, and such a wait does nothing.

#include <functional>
#include <vector>

#include "runtime/stream.h"

namespace flatshard {

class Graph {
 public:
  // Captures what `work` gives to the streams; nothing runs. It may neither synchronise nor run work on the
  // host's side.
  Graph(StreamGroup& group, const std::function<void()>& work);
  ~Graph();
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;

  void launch();

 private:
  StreamGroup* group_;
  void* native_ = nullptr;
  std::vector<Event> before_;  // where the other streams stand
  Event done_;
};

}  // namespace flatshard
