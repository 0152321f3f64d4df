#pragma once
// A trace span for the work of a C++ scope.

#include <cstdint>
#include <memory>
#include <string>

namespace flatshard {

class KernelSpans;
class Recording;
class Trace;

// Records its lifetime as a span: "gemm", or with a number "forward 3". With a null trace, or
// while the trace is not recording, it does nothing. In a recording of planned work it is a scope; on a GPU
// stream it covers the work that is enqueued during its lifetime.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, int row, const char* what, int number = -1);
  TraceSpan(Recording& recording, int stream, const char* what, int number = -1);
  TraceSpan(KernelSpans& kernels, int row, void* stream, const char* what, int number = -1);
  ~TraceSpan();
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  Recording* recording_ = nullptr;
  KernelSpans* kernels_ = nullptr;
  void* stream_ = nullptr;
  std::shared_ptr<void> began_{};
  int row_;
  std::string name_;
  int64_t begin_ = 0;  // begin in ticks of Trace::Clock
};

}  // namespace flatshard
