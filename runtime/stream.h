#pragma once
// Streams and events with CUDA semantics: a stream runs its work in order, and wait(event) blocks a stream
// until the work enqueued before record(event) is done. On the CPU, StreamOrder selects when work runs:
//
//   in_order     everything runs at the call
//   concurrent   compute work runs at the call; each communication stream has its own thread
//   comm_late    for tests: all work is queued until the host synchronizes; then communication runs as late
//   comm_early   ... or as early as the recorded events allow
//
// With `concurrent`, a compute stream that waits blocks the host; waited_seconds() is the sum of this exposed
// communication time.
//
// A complete schedule produces the same bits in all orders. Tests leave out one wait or record of a small
// trainer at a time; the bits then differ in comm_late or comm_early.
//
// A planning set drops all work: run on planning streams and planning arenas, a program measures its memory.
// If the set has a recording, it records the dropped work.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device.h"
#include "runtime/trace_span.h"

namespace flatshard {

enum class StreamRole { compute, comm };
enum class StreamOrder { in_order, concurrent, comm_late, comm_early };

class Graph;
class KernelSpans;
struct OpCall;
class StreamSet;
class StreamWorker;

// A position in a stream's work. Recording again moves it; earlier waits keep the old position. Waiting for
// an event that was never recorded does nothing.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

 private:
  friend class Stream;
  friend class StreamSet;
  struct Ticket {  // one call of record() in an order other than in_order
    explicit Ticket(int stream_index) : stream(stream_index) {}
    int stream;
    std::atomic<bool> done{false};
  };
  std::shared_ptr<Ticket> ticket_;
  void* native_ = nullptr;
  int64_t capture_ = 0;  // the capture of the last record(); 0: none
  int recorded_ = -1;    // number of the last record() in a recording
};

class Stream {
 public:
  // Runs or enqueues CPU work. `what` names it in a trace and must outlive the work. On a CUDA stream it
  // throws the Error that the op has no CUDA implementation.
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

  // A trace span such as "forward 3" around all work that runs during its lifetime. On a CPU stream whose
  // work does not run at the call it records nothing. In a recording it is a scope.
  TraceSpan span(const char* what, int number = -1) const;

  void record(Event& event);
  void wait(const Event& event);
  // Blocks the host until all work enqueued so far is done; rethrows an exception of that work.
  void sync();

  // The stream for work on host memory, in order with this stream's other work: ops run their CPU
  // implementation. On the CPU it is this stream itself; on a CUDA device the work becomes host functions,
  // which must neither block nor call CUDA.
  Stream& host_side() { return host_side_ ? *host_side_ : *this; }

  Device device() const;
  bool planning() const;
  // Returns whether ops must pass their calls to note(): a recording collects the work of this planning
  // stream, or a trace times the work of a GPU.
  bool recorded() const { return recording_ != nullptr || (times_kernels() && !is_host_side_); }
  void note(const OpCall& op) const;
  // Returns whether a trace times the work of this stream with events. An op then lasts from starts() to the
  // last launched() before the next op.
  bool times_kernels() const;
  void starts(std::string_view what) const;
  void launched() const;
  Recording* recording() const { return recording_; }
  int index() const { return index_; }  // index in the set
  // Returns whether work that is enqueued now is captured in a graph (graph.h) and does not run.
  bool capturing() const;
  bool traced() const { return trace_ != nullptr; }
  const std::string& name() const { return name_; }
  void* native() const { return native_; }  // cudaStream_t; null on the CPU

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

 private:
  friend class StreamSet;
  Stream(StreamSet& set, int index, std::string name, StreamRole role);
  explicit Stream(Stream& cuda);                  // the host side of a CUDA stream
  bool runs_immediately(const char* what) const;  // throws if `what` cannot run on this device
  bool runs_immediately() const;
  void wait_on_host(const Event& event);
  void defer(const char* what, std::function<void()> work);

  StreamSet& set_;
  int index_;
  std::string name_;
  StreamRole role_;
  void* native_ = nullptr;
  std::unique_ptr<Stream> host_side_;  // set only for a CUDA stream
  bool is_host_side_ = false;
  std::unique_ptr<StreamWorker> worker_;  // set only for a communication stream in the order `concurrent`
  Trace* trace_ = nullptr;
  int trace_row_ = 0;
  Recording* recording_ = nullptr;
};

struct StreamOptions {
  StreamOrder order = StreamOrder::in_order;
  bool planning = false;
  Trace* trace = nullptr;          // one row per stream; must outlive the set
  Recording* recording = nullptr;  // allowed only for a planning set; must outlive the set
};

// Streams of one device that may wait for one another. The destructor drops queued work, so synchronize
// first.
class StreamSet {
 public:
  explicit StreamSet(Device device, StreamOptions options = {});
  ~StreamSet();
  StreamSet(const StreamSet&) = delete;
  StreamSet& operator=(const StreamSet&) = delete;

  Stream& add(std::string name, StreamRole role = StreamRole::compute);
  void sync_all();
  // The time for which the host has waited for communication streams so far, in the order `concurrent`.
  double waited_seconds() const { return waited_seconds_; }
  Device device() const { return device_; }
  const StreamOptions& options() const { return options_; }

 private:
  friend class Graph;
  friend class Stream;
  struct DeferredWork;

  Device device_;
  StreamOptions options_;
  std::unique_ptr<KernelSpans> kernels_;  // set only on a GPU with a trace
  std::vector<std::unique_ptr<Stream>> streams_;
  std::unique_ptr<DeferredWork> deferred_;  // the queues of comm_late and comm_early
  double waited_seconds_ = 0;
  int64_t capture_ = 0,
          captures_ = 0;  // number of the current capture, or 0, and number of captures so far (graph.h)
};

}  // namespace flatshard
