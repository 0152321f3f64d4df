#pragma once
// A span of a trace, for what a scope does.

#include <cstdint>
#include <memory>
#include <string>

namespace flatshard {

class KernelSpans;
class Recording;
class Trace;

// Records its lifetime as a span: "gemm", or with a number "forward 3". With a null trace, or
// while the trace is not recording, it does nothing. In a recording of planned work it is a scope; on a
// stream of a GPU it lasts as long as the work that the stream gets meanwhile.
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
  int64_t begin_ = 0;  // in ticks of Trace::Clock
};

}  // namespace flatshard
