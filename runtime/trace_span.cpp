#include "runtime/trace_span.h"

#include <utility>

#include "runtime/check.h"
#include "runtime/kernel_spans.h"
#include "runtime/recording.h"
#include "runtime/trace.h"

namespace flatshard {
namespace {

std::string span_name(const char* what, int number) {
  return number < 0 ? std::string(what) : str(what, ' ', number);
}

}  // namespace

TraceSpan::TraceSpan(Trace* trace, int row, const char* what, int number) : trace_(trace), row_(row) {
  if (trace_ && !trace_->recording()) trace_ = nullptr;
  if (!trace_) return;
  name_ = span_name(what, number);
  begin_ = Trace::Clock::now().time_since_epoch().count();
}

TraceSpan::TraceSpan(Recording& recording, int stream, const char* what, int number)
    : trace_(nullptr), recording_(&recording), row_(stream) {
  recording.begin_scope(stream, span_name(what, number));
}

TraceSpan::TraceSpan(KernelSpans& kernels, int row, void* stream, const char* what, int number)
    : trace_(nullptr),
      kernels_(&kernels),
      stream_(stream),
      began_(kernels.now(stream)),
      row_(row),
      name_(span_name(what, number)) {}

TraceSpan::~TraceSpan() {
  if (recording_) recording_->end_scope(row_);
  if (kernels_) kernels_->end_scope(row_, stream_, name_, std::move(began_));
  if (trace_)
    trace_->add_span(row_, name_, Trace::Clock::time_point(Trace::Clock::duration(begin_)),
                     Trace::Clock::now());
}

}  // namespace flatshard
