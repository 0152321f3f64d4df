#pragma once
// A timeline with one row per stream, written as Chrome trace events, which Perfetto opens.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/recording.h"

namespace flatshard {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  // `process` is the rank that the rows belong to.
  explicit Trace(int process = 0) : process_(process), start_(Clock::now()) {}

  // Adds a row and returns its number.
  int add_row(std::string name);
  // Spans that end while recording is off are dropped. It is initially on.
  void set_recording(bool on) { recording_ = on; }
  bool recording() const { return recording_; }
  // `op` is the call that the span times, if that is known.
  void add_span(int row, std::string_view what, Clock::time_point begin, Clock::time_point end,
                const OpCall* op = nullptr);
  // Adds the spans of GPU work that has ended, by a call of the `source` that collect_from() set.
  void collect() {
    if (source_) source_();
  }
  void collect_from(std::function<void()> source) { source_ = std::move(source); }
  int64_t span_count() const;
  // An upper bound of the size of all spans as JSON.
  int64_t json_bytes() const;

  int process() const { return process_; }
  Clock::time_point start() const { return start_; }
  std::vector<std::string> rows() const;
  // Calls visit(row, what, begin, end) for every span in the order in which they were added.
  template <class Visit>
  void each_span(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    for (const Span& span : spans_)
      visit(rows_[static_cast<size_t>(span.row)], *span.what, span.begin, span.begin + span.duration);
  }
  // Calls visit(op, duration) for every span of a known call, in the same order.
  template <class Visit>
  void each_op(Visit&& visit) const {
    const std::lock_guard lock(mutex_);
    for (const Span& span : spans_)
      if (span.op) visit(*span.op, span.duration);
  }
  // The names of the process and its rows as events: one JSON object per line, separated by commas. A
  // non-empty `note` becomes a label of the process.
  std::string names_json(const std::string& note = "") const;
  // Spans [first, first + count), clipped to the existing ones, in the same format; times are microseconds
  // since `zero`.
  std::string spans_json(int64_t first, int64_t count, Clock::time_point zero) const;

 private:
  struct Span {
    int row;
    const std::string* what;
    const OpCall* op;  // null: not known
    Clock::time_point begin;
    Clock::duration duration;
  };
  int process_;
  Clock::time_point start_;
  std::atomic<bool> recording_ = true;
  std::function<void()> source_;
  mutable std::mutex mutex_;
  std::vector<std::string> rows_;
  std::set<std::string, std::less<>> names_;  // interned span names
  std::set<OpCall> ops_;                      // interned calls
  std::vector<Span> spans_;
  int64_t name_bytes_ = 0;
};

// A step of one or several ranks, whose traces are in this process.
struct StepTimeline {
  std::vector<std::unique_ptr<Trace>> ranks;
  std::string what;  // names the ranks: "simulated, of one rank"
};

}  // namespace flatshard
