#include "runtime/graph.h"

#include <utility>

#include "build_config.h"
#include "runtime/check.h"
#include "runtime/cuda.h"

namespace flatshard {
namespace {

using Streams = std::vector<std::unique_ptr<Stream>>;

// Makes the first stream wait for all others, with one event for each of them.
void join(const Streams& streams, std::vector<Event>& events) {
  for (size_t i = 1; i < streams.size(); ++i) {
    streams[i]->record(events[i - 1]);
    streams[0]->wait(events[i - 1]);
  }
}

// Makes all other streams wait for the first.
void fork(const Streams& streams, Event& event) {
  streams[0]->record(event);
  for (size_t i = 1; i < streams.size(); ++i) streams[i]->wait(event);
}

}  // namespace

Graph::Graph(StreamSet& set, const std::function<void()>& work) : set_(&set) {
  check(set.device().is_cuda(), "a graph on ", set.device(), ": only CUDA devices support graphs");
  check(!set.options().planning, "a graph cannot be captured on planning streams");
  check(!set.streams_.empty(), "a graph cannot be captured on a set without streams");
  check(set.capture_ == 0, "a graph cannot be captured inside another");
  before_.resize(set.streams_.size() - 1);
  if constexpr (kCudaBuilt) {
    void* const first = set.streams_[0]->native();
    cuda::begin_capture(first);
    set.capture_ = ++set.captures_;
    try {
      fork(set.streams_, done_);
      work();
      join(set.streams_, before_);
    } catch (...) {
      set.capture_ = 0;
      cuda::abandon_capture(first);
      throw;
    }
    set.capture_ = 0;
    native_ = cuda::end_capture(first);
  }
}

Graph::~Graph() {
  if constexpr (kCudaBuilt)
    if (native_) cuda::destroy_graph(native_);
}

Graph::Graph(Graph&& other) noexcept
    : set_(other.set_),
      native_(std::exchange(other.native_, nullptr)),
      before_(std::move(other.before_)),
      done_(std::move(other.done_)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(set_, other.set_);
  std::swap(native_, other.native_);
  std::swap(before_, other.before_);
  std::swap(done_, other.done_);
  return *this;
}

void Graph::launch() {
  join(set_->streams_, before_);
  if constexpr (kCudaBuilt) cuda::launch_graph(native_, set_->streams_[0]->native());
  fork(set_->streams_, done_);
}

}  // namespace flatshard
