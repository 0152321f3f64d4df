#pragma once
// Streams and events with CUDA's meaning: a stream runs its work in order; wait(event) holds a stream back
// until the work that stood before record(event) is done. On the CPU the same program runs in one of four
// orders. in_order runs everything at the call. concurrent does so for compute streams and gives each
// communication stream a thread of its own; a compute stream that waits blocks the host, and the time it
// stands there is what communication costs. For tests, the two others hold all work back until the host
// synchronises, and then let communication run as late, or as early, as the recorded events allow: a schedule
// that gives the same bits in all orders has no missing wait.
//
// A planning group drops all work: a program run on planning streams and planning arenas measures its memory.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/trace.h"

namespace flatshard {

enum class StreamRole { compute, comm };
enum class StreamOrder { in_order, concurrent, comm_late, comm_early };

class Graph;
class StreamGroup;
class StreamWorker;

// A point in a stream's work. Recording again replaces the point; waits made before keep the old one. An
// event never recorded holds nobody back.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

 private:
  friend class Stream;
  friend class StreamGroup;
  struct Ticket {  // one record of a CPU stream that does not run everything at the call
    explicit Ticket(int stream_index) : stream(stream_index) {}
    int stream;
    std::atomic<bool> done{false};
  };
  std::shared_ptr<Ticket> ticket_;
  void* native_ = nullptr;
  int64_t capture_ = 0;  // in which it was recorded last; 0: in none
};

class Stream {
 public:
  // Runs work on this CPU stream, now or when its turn comes. `what` names it in a trace and must live until
  // then. On a CUDA stream this is the error that the op has no CUDA twin.
  template <class Work>
  void run(const char* what, Work&& work) {
    if (planning()) return;
    if (runs_immediately(what)) {
      const TraceSpan span(trace_, trace_row_, what);
      work();
    } else {
      defer(what, std::forward<Work>(work));
    }
  }

  // One span of the trace around all that is run until its end, such as "forward 3". Only where work runs at
  // the call; elsewhere the host's time says nothing of it.
  TraceSpan span(const char* what, int number = -1) const;

  void record(Event& event);
  void wait(const Event& event);
  // Blocks the host until all work given so far is done; throws what that work threw.
  void sync();

  // This stream for work on host memory, in the order of its other work: ops on it run their CPU twins. On
  // the CPU it is the stream itself; on a CUDA device such work becomes host functions, which may neither
  // block nor call CUDA.
  Stream& host_side() { return host_side_ ? *host_side_ : *this; }

  Device device() const;
  bool planning() const;
  bool traced() const { return trace_ != nullptr; }
  const std::string& name() const { return name_; }
  void* native() const { return native_; }  // the cudaStream_t; null on the CPU

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

 private:
  friend class StreamGroup;
  Stream(StreamGroup& group, int index, std::string name, StreamRole role);
  explicit Stream(Stream& cuda);                  // its host side
  bool runs_immediately(const char* what) const;  // an Error where `what` cannot run at all
  bool runs_immediately() const;
  void wait_on_host(const Event& event);
  void defer(const char* what, std::function<void()> work);

  StreamGroup& group_;
  int index_;
  std::string name_;
  StreamRole role_;
  void* native_ = nullptr;
  std::unique_ptr<Stream> host_side_;  // of a CUDA stream
  bool is_host_side_ = false;
  std::unique_ptr<StreamWorker> worker_;  // of a communication stream in the order `concurrent`
  Trace* trace_ = nullptr;
  int trace_row_ = 0;
};

struct StreamOptions {
  StreamOrder order = StreamOrder::in_order;
  bool planning = false;
  Trace* trace = nullptr;  // one row per stream; must outlive the group
};

// The streams of one device that may wait for one another. Work still held back when the group ends is
// dropped: synchronise first.
class StreamGroup {
 public:
  explicit StreamGroup(Device device, StreamOptions options = {});
  ~StreamGroup();
  StreamGroup(const StreamGroup&) = delete;
  StreamGroup& operator=(const StreamGroup&) = delete;

  Stream& add(std::string name, StreamRole role = StreamRole::compute);
  void sync_all();
  // How long the host has stood waiting for communication streams so far, in the order `concurrent`.
  double waited_seconds() const { return waited_seconds_; }
  Device device() const { return device_; }
  const StreamOptions& options() const { return options_; }

 private:
  friend class Graph;
  friend class Stream;
  struct DeferredWork;

  Device device_;
  StreamOptions options_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unique_ptr<DeferredWork> deferred_;  // the queues of the two late orders
  double waited_seconds_ = 0;
  int64_t capture_ = 0, captures_ = 0;  // the one under way, if any (graph.h); how many there were
};

}  // namespace flatshard
