#include "comm/trace_file.h"

#include <cmath>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/check.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

constexpr int64_t kSpansAtOnce = 16384;  // about 1.5 MB of text

// The start of rank 0's trace on this rank's clock.
Trace::Clock::time_point common_zero(const Trace& trace, World& world, const ClockOffset& offset) {
  const double start = std::chrono::duration<double>(trace.start().time_since_epoch()).count();
  const double zero = world.all_gather({&start, 1}, "the start of traces").front() - offset.seconds;
  return Trace::Clock::time_point(
      std::chrono::duration_cast<Trace::Clock::duration>(std::chrono::duration<double>(zero)));
}

// The JSON events of a trace: its names, then its spans in pieces.
class TraceText {
 public:
  TraceText(const Trace& trace, std::string note, Trace::Clock::time_point zero)
      : trace_(trace), note_(std::move(note)), zero_(zero) {}

  // The next piece; "" after the last.
  std::string next() {
    if (next_ < 0) {
      next_ = 0;
      return trace_.names_json(note_);
    }
    next_ += kSpansAtOnce;
    return trace_.spans_json(next_ - kSpansAtOnce, kSpansAtOnce, zero_);
  }

 private:
  const Trace& trace_;
  std::string note_;
  Trace::Clock::time_point zero_;
  int64_t next_ = -1;
};

// The trace file, which accepts pieces as long as they fit.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : file_(path) { file_.write("{\"traceEvents\": [\n"); }

  void add(const std::string& events) {
    const std::string text = (first_ ? "" : ",\n") + events;
    if (file_.size() + std::ssize(text) + std::ssize(kEnd) > kMostTraceBytes) complete_ = false;
    if (complete_) file_.write(text);
    first_ = false;
  }
  // Returns whether all pieces have fit.
  bool finish() {
    file_.write(std::string(kEnd));
    file_.finish();
    return complete_;
  }

 private:
  static constexpr std::string_view kEnd = "\n]}\n";
  NewFile file_;
  bool first_ = true, complete_ = true;
};

}  // namespace

bool write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset) {
  const Trace::Clock::time_point zero = common_zero(trace, world, offset);
  TraceText mine(trace, offset.error > 0 ? str("clock known to ", std::ceil(offset.error * 1e6), " us") : "",
                 zero);
  std::optional<TraceFile> file;
  // An error is rethrown after all ranks have sent their spans, which would otherwise block.
  std::exception_ptr failure;
  const auto guarded = [&](auto&& write) {
    if (failure) return;
    try {
      write();
    } catch (const Error&) {
      failure = std::current_exception();
    }
  };
  if (world.rank() == 0) guarded([&] { file.emplace(path); });
  world.collect([&] { return mine.next(); },
                [&](int, const std::string& events) { guarded([&] { file->add(events); }); });
  if (world.rank() != 0) return true;
  bool complete = true;
  guarded([&] { complete = file->finish(); });
  if (failure) std::rethrow_exception(failure);
  return complete;
}

bool write_trace(const std::string& path, const std::vector<const Trace*>& traces) {
  TraceFile file(path);
  for (const Trace* const trace : traces) {
    TraceText text(*trace, "", trace->start());
    for (std::string events = text.next(); !events.empty(); events = text.next()) file.add(events);
  }
  return file.finish();
}

}  // namespace flatshard
