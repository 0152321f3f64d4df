#pragma once
// A timeline of what ran when, one row per stream, written as Chrome trace JSON (open it in Perfetto).

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace flatshard {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  // `process` numbers the process (the rank) whose rows these are.
  explicit Trace(int process = 0) : process_(process), start_(Clock::now()) {}

  // A new row with this name; returns its number.
  int add_row(std::string name);
  // `what` must live as long as the trace (a literal).
  void add_span(int row, const char* what, Clock::time_point begin, Clock::time_point end);
  int64_t span_count() const;

  // Writes {"traceEvents": [...]} to a file; throws Error when it cannot.
  void write(const std::string& path) const;
  std::string json() const;

 private:
  struct Span {
    int row;
    const char* what;
    double begin_us, duration_us;
  };
  int process_;
  Clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<std::string> rows_;
  std::vector<Span> spans_;
};

// The time between its construction and its end, as one span. With a null trace it does nothing.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, int row, const char* what) : trace_(trace), row_(row), what_(what) {
    if (trace_) begin_ = Trace::Clock::now();
  }
  ~TraceSpan() {
    if (trace_) trace_->add_span(row_, what_, begin_, Trace::Clock::now());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  int row_;
  const char* what_;
  Trace::Clock::time_point begin_;
};

}  // namespace flatshard
