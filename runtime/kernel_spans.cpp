#include "runtime/kernel_spans.h"

#include <utility>

#include "build_config.h"
#include "runtime/check.h"
#include "runtime/cuda.h"

namespace flatshard {
namespace {

// The shortest wait of the compute stream that becomes a span. A shorter one is merely the time between two
// events.
constexpr std::chrono::microseconds kShortestWait{3};

}  // namespace

KernelSpans::KernelSpans(Trace& trace, Device device) : trace_(trace), device_(device) {}

KernelSpans::~KernelSpans() {
  open_.clear();
  pending_.clear();
  base_.reset();
  if constexpr (kCudaBuilt) {
    for (void* const event : free_) cuda::destroy_event(event);
    if (clock_) cuda::destroy_stream(clock_);
  }
}

KernelSpans::Moment KernelSpans::now(void* stream) {
  void* event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
  }
  if constexpr (kCudaBuilt) {
    if (!base_) {  // recorded on a stream of its own, where no work delays it
      clock_ = cuda::create_stream(device_, true);
      void* base = nullptr;
      cuda::record_time(base, device_, clock_);
      base_ = Moment(base, cuda::destroy_event);
      cuda::seconds_between(base, base);
      base_time_ = Trace::Clock::now();
    }
    cuda::record_time(event, device_, stream);
  }
  return {event, [this](void* used) { free_.push_back(used); }};
}

void KernelSpans::close(Span& op) {
  if (op.end) pending_.push_back(std::move(op));
  op = {};
}

void KernelSpans::start(int row, void* stream, std::string_view what, const OpCall* call) {
  Span& op = open_[row];
  close(op);
  op = {.row = row,
        .what = std::string(what),
        .call = call ? std::optional(*call) : std::nullopt,
        .begin = now(stream)};
}

void KernelSpans::launched(int row, void* stream) {
  Span& op = open_[row];
  if (op.begin) op.end = now(stream);
}

void KernelSpans::end_scope(int row, void* stream, std::string_view what, Moment begin) noexcept {
  try {
    close(open_[row]);
    pending_.push_back(
        {.row = row, .what = std::string(what), .begin = std::move(begin), .end = now(stream)});
  } catch (const Error&) {  // a destructor calls this, possibly while an exception is thrown
  }
}

Trace::Clock::time_point KernelSpans::host_time(const Moment& moment) const {
  double seconds = 0;
  if constexpr (kCudaBuilt) seconds = cuda::seconds_between(base_.get(), moment.get());
  return base_time_ +
         std::chrono::duration_cast<Trace::Clock::duration>(std::chrono::duration<double>(seconds));
}

void KernelSpans::collect() {
  for (auto& [row, op] : open_) close(op);
  std::vector<Span> running;
  for (Span& span : std::exchange(pending_, {})) {
    bool ended = true;
    if constexpr (kCudaBuilt) ended = cuda::has_reached(span.end.get());
    if (!ended) {
      running.push_back(std::move(span));
      continue;
    }
    const auto begin = host_time(span.begin), end = host_time(span.end);
    if (span.what != "wait" || end - begin >= kShortestWait)
      trace_.add_span(span.row, span.what, begin, end, span.call ? &*span.call : nullptr);
  }
  pending_ = std::move(running);
}

}  // namespace flatshard
