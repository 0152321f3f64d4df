#include "runtime/stream.h"

#include <chrono>
#include <deque>

#include "build_config.h"
#include "runtime/check.h"
#include "runtime/cuda.h"
#include "runtime/kernel_spans.h"
#include "runtime/recording.h"
#include "runtime/stream_worker.h"
#include "runtime/trace.h"

namespace flatshard {

// The work that comm_late and comm_early have not run yet, one queue per stream, and the rule that selects
// the next item.
struct StreamSet::DeferredWork {
  enum class Kind { work, record, wait };
  struct Item {
    Kind kind;
    const char* what;
    std::function<void()> work;
    std::shared_ptr<Event::Ticket> ticket;
  };

  StreamSet& set;
  std::vector<std::deque<Item>> queues;

  std::deque<Item>& queue(int stream) { return queues[static_cast<size_t>(stream)]; }

  void push(int stream, Item item) {
    if (queues.size() <= static_cast<size_t>(stream)) queues.resize(static_cast<size_t>(stream) + 1);
    queue(stream).push_back(std::move(item));
  }

  static bool blocked(const Item& item) { return item.kind == Kind::wait && !item.ticket->done; }

  void run_front(int stream) {
    const Item item = std::move(queue(stream).front());
    queue(stream).pop_front();
    if (item.kind == Kind::record) item.ticket->done = true;
    if (item.kind != Kind::work) return;
    const Stream& s = *set.streams_[static_cast<size_t>(stream)];
    const TraceSpan span(s.trace_, s.trace_row_, item.what);
    item.work();
  }

  // Implements comm_early: communication runs before all compute work unless an event orders that work first.
  void run_ready_comm() {
    for (bool progress = true; progress;) {
      progress = false;
      for (int i = 0; i < static_cast<int>(queues.size()); ++i) {
        if (set.streams_[static_cast<size_t>(i)]->role_ != StreamRole::comm) continue;
        for (; !queue(i).empty() && !blocked(queue(i).front()); progress = true) run_front(i);
      }
    }
  }

  // Runs a stream until `until` is done or, if it is null, until the stream is empty. Other streams advance
  // only as far as a wait requires, which makes communication late in comm_late. A wait refers to a record
  // enqueued before it, so the recursion terminates.
  void finish(int stream, const Event::Ticket* until) {
    if (queues.size() <= static_cast<size_t>(stream)) return;
    for (;;) {
      if (set.options_.order == StreamOrder::comm_early) run_ready_comm();
      if (until ? until->done.load() : queue(stream).empty()) return;
      if (const Item& front = queue(stream).front(); blocked(front)) {
        const std::shared_ptr<Event::Ticket> ticket = front.ticket;
        finish(ticket->stream, ticket.get());
      } else {
        run_front(stream);
      }
    }
  }
};

Event::~Event() {
  if constexpr (kCudaBuilt)
    if (native_) cuda::destroy_event(native_);
}

Event::Event(Event&& other) noexcept
    : ticket_(std::move(other.ticket_)),
      native_(std::exchange(other.native_, nullptr)),
      capture_(other.capture_),
      recorded_(other.recorded_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(ticket_, other.ticket_);
  std::swap(native_, other.native_);
  std::swap(capture_, other.capture_);
  std::swap(recorded_, other.recorded_);
  return *this;
}

Stream::Stream(StreamSet& set, int index, std::string name, StreamRole role)
    : set_(set), index_(index), name_(std::move(name)), role_(role), trace_(set.options().trace) {
  if (planning()) {
    recording_ = set.options().recording;
    if (recording_) recording_->add_stream(name_, role == StreamRole::comm);
    if (device().is_cuda()) host_side_.reset(new Stream(*this));
    return;
  }
  if (trace_) trace_row_ = trace_->add_row(name_);
  if constexpr (kCudaBuilt)
    if (device().is_cuda()) {
      native_ = cuda::create_stream(device(), role == StreamRole::comm);
      host_side_.reset(new Stream(*this));
    }
  if (!device().is_cuda() && set.options().order == StreamOrder::concurrent && role == StreamRole::comm)
    worker_ = std::make_unique<StreamWorker>();
}

Stream::Stream(Stream& cuda)
    : set_(cuda.set_),
      index_(cuda.index_),
      name_(cuda.name_),
      role_(cuda.role_),
      native_(cuda.native_),
      is_host_side_(true),
      trace_(cuda.trace_),
      trace_row_(cuda.trace_row_),
      recording_(cuda.recording_) {}

Stream::~Stream() {
  if constexpr (kCudaBuilt)
    if (native_ && !is_host_side_) cuda::destroy_stream(native_);
}

Device Stream::device() const { return is_host_side_ ? Device::cpu() : set_.device(); }
bool Stream::planning() const { return set_.options().planning; }
bool Stream::capturing() const { return set_.capture_ != 0; }

bool Stream::runs_immediately(const char* what) const {
  check(!device().is_cuda(), what,
        " has no CUDA kernel in this build; run it on the CPU (run.device = \"cpu\")");
  return runs_immediately();
}

bool Stream::runs_immediately() const {
  if (is_host_side_) return false;
  const StreamOrder order = set_.options().order;
  return order == StreamOrder::in_order || (order == StreamOrder::concurrent && !worker_);
}

TraceSpan Stream::span(const char* what, int number) const {
  if (recording_) return TraceSpan(*recording_, index_, what, number);
  if (times_kernels()) return TraceSpan(*set_.kernels_, trace_row_, native_, what, number);
  const bool timed = !planning() && !device().is_cuda() && runs_immediately();
  return TraceSpan(timed ? trace_ : nullptr, trace_row_, what, number);
}

void Stream::defer(const char* what, std::function<void()> work) {
  if constexpr (kCudaBuilt)
    if (is_host_side_) {
      check(set_.capture_ == 0, what, " runs on the host and cannot be captured in a graph");
      if (times_kernels()) starts(what);
      cuda::run_on_host(native_, std::move(work));
      return launched();
    }
  if (worker_)
    return worker_->push([this, what, work = std::move(work)] {
      const TraceSpan span(trace_, trace_row_, what);
      work();
    });
  set_.deferred_->push(index_, {StreamSet::DeferredWork::Kind::work, what, std::move(work), nullptr});
}

void Stream::note(const OpCall& op) const {
  recording_ ? recording_->add_op(index_, is_host_side_, op)
             : set_.kernels_->start(trace_row_, native_, op.name, &op);
}

bool Stream::times_kernels() const { return set_.kernels_ && trace_->recording() && set_.capture_ == 0; }

void Stream::starts(std::string_view what) const { set_.kernels_->start(trace_row_, native_, what); }

void Stream::launched() const {
  if (times_kernels()) set_.kernels_->launched(trace_row_, native_);
}

void Stream::record(Event& event) {
  if (recording_) event.recorded_ = recording_->add_record(index_, event.recorded_);
  if (planning()) return;
  if constexpr (kCudaBuilt)
    if (native_) {
      event.capture_ = set_.capture_;
      return cuda::record_event(event.native_, set_.device(), native_);
    }
  if (set_.options().order == StreamOrder::in_order) return;
  const auto ticket = event.ticket_ = std::make_shared<Event::Ticket>(index_);
  const auto complete = [ticket] {
    ticket->done = true;
    ticket->done.notify_all();
  };
  if (worker_) return worker_->push_always(complete);
  if (set_.options().order == StreamOrder::concurrent) return complete();  // all earlier work is done
  set_.deferred_->push(index_, {StreamSet::DeferredWork::Kind::record, "record", nullptr, ticket});
}

void Stream::wait(const Event& event) {
  if (recording_ && event.recorded_ >= 0) recording_->add_wait(index_, event.recorded_);
  if (planning()) return;
  if constexpr (kCudaBuilt)
    if (native_) {
      const bool counts = event.native_ && event.capture_ == set_.capture_;  // see graph.h
      if (!counts) return;
      const bool is_timed = role_ == StreamRole::compute && times_kernels();
      if (is_timed) starts("wait");
      cuda::wait_event(native_, event.native_);
      return is_timed ? launched() : void();
    }
  if (!event.ticket_ || event.ticket_->done) return;
  if (worker_) return worker_->push_always([ticket = event.ticket_] { ticket->done.wait(false); });
  if (set_.options().order == StreamOrder::concurrent) return wait_on_host(event);
  set_.deferred_->push(index_, {StreamSet::DeferredWork::Kind::wait, "wait", nullptr, event.ticket_});
}

void Stream::wait_on_host(const Event& event) {
  const TraceSpan span(trace_, trace_row_, "wait");
  const auto begin = std::chrono::steady_clock::now();
  event.ticket_->done.wait(false);
  set_.waited_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (const auto& worker = set_.streams_[static_cast<size_t>(event.ticket_->stream)]->worker_)
    worker->rethrow();
}

void Stream::sync() {
  if (planning()) return;
  if constexpr (kCudaBuilt)
    if (native_) return cuda::sync_stream(native_, name_);
  if (worker_) return worker_->sync();
  set_.deferred_->finish(index_, nullptr);
}

StreamSet::StreamSet(Device device, StreamOptions options)
    : device_(device), options_(options), deferred_(new DeferredWork{*this, {}}) {
  check(options.planning || !device.is_cuda() || device.index < cuda_device_count(), "device ", device,
        " does not exist: this process can use ", cuda_device_count(), " CUDA devices");
  if (!options.trace || options.planning || !device.is_cuda()) return;
  kernels_ = std::make_unique<KernelSpans>(*options.trace, device);
  options.trace->collect_from([this] { kernels_->collect(); });
}

StreamSet::~StreamSet() {
  if (kernels_) options_.trace->collect_from({});
}

Stream& StreamSet::add(std::string name, StreamRole role) {
  const int index = static_cast<int>(streams_.size());
  streams_.emplace_back(new Stream(*this, index, std::move(name), role));
  return *streams_.back();
}

void StreamSet::sync_all() {
  for (const std::unique_ptr<Stream>& stream : streams_) stream->sync();
}

}  // namespace flatshard
