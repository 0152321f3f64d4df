#pragma once
// The spans of a trace on the streams of a GPU, which runs its work some time after the call that enqueues
// it. Timing events on the stream surround the work; their times are read once the GPU has reached them.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/device.h"
#include "runtime/trace.h"

namespace flatshard {

class KernelSpans {
 public:
  KernelSpans(Trace& trace, Device device);  // `trace` must outlive it
  ~KernelSpans();
  KernelSpans(const KernelSpans&) = delete;
  KernelSpans& operator=(const KernelSpans&) = delete;

  // An op on the stream of this row begins. It ends with the last launched() before the next op.
  void start(int row, void* stream, std::string_view what, const OpCall* call = nullptr);
  void launched(int row, void* stream);

  // A span around several ops lasts from now() to end_scope(). If the GPU has failed, end_scope() drops the
  // span; the next call reports the failure.
  using Moment = std::shared_ptr<void>;  // a timing event
  Moment now(void* stream);
  void end_scope(int row, void* stream, std::string_view what, Moment begin) noexcept;

  // Adds the spans whose end the GPU has reached to the trace.
  void collect();

 private:
  struct Span {
    int row = 0;
    std::string what{};
    std::optional<OpCall> call{};
    Moment begin{}, end{};
  };

  void close(Span& op);
  Trace::Clock::time_point host_time(const Moment& moment) const;

  Trace& trace_;
  Device device_;
  std::vector<void*> free_;  // timing events
  void* clock_ = nullptr;    // a stream without work, on which base_ is recorded
  Moment base_{};            // the GPU's moment at which the host's clock showed base_time_
  Trace::Clock::time_point base_time_{};
  std::map<int, Span> open_;   // the op that was started last in each row
  std::vector<Span> pending_;  // spans that are not in the trace yet
};

}  // namespace flatshard
