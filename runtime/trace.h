#pragma once
// A timeline of what ran when, one row per stream, as Chrome trace events (Perfetto opens them).

#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace flatshard {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  // `process` numbers the process (the rank) whose rows these are.
  explicit Trace(int process = 0) : process_(process), start_(Clock::now()) {}

  // A new row with this name; returns its number.
  int add_row(std::string name);
  void add_span(int row, std::string_view what, Clock::time_point begin, Clock::time_point end);
  int64_t span_count() const;

  int process() const { return process_; }
  Clock::time_point start() const { return start_; }
  // The names of process and rows as events, one JSON object a line, commas between. `note` stands beside the
  // process where it is not empty.
  std::string names_json(const std::string& note = "") const;
  // The same of spans [first, first + count), as far as there are that many; microseconds since `zero`.
  std::string spans_json(int64_t first, int64_t count, Clock::time_point zero) const;

 private:
  struct Span {
    int row;
    const std::string* what;
    Clock::time_point begin;
    Clock::duration duration;
  };
  int process_;
  Clock::time_point start_;
  mutable std::mutex mutex_;
  std::vector<std::string> rows_;
  std::set<std::string, std::less<>> names_;  // each name of a span once
  std::vector<Span> spans_;
};

// The time between its construction and its end, as one span: "gemm", or with a number "forward 3". With a
// null trace it does nothing.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, int row, const char* what, int number = -1);
  ~TraceSpan() {
    if (trace_) trace_->add_span(row_, name_, begin_, Trace::Clock::now());
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  int row_;
  std::string name_;
  Trace::Clock::time_point begin_;
};

}  // namespace flatshard
