#include "comm/trace_file.h"

#include <cmath>
#include <exception>
#include <optional>
#include <string_view>

#include "runtime/check.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

constexpr int64_t kSpansAtOnce = 16384;  // some 1.5 MB of text

// The start of rank 0's trace on this rank's clock.
Trace::Clock::time_point common_zero(const Trace& trace, World& world, const ClockOffset& offset) {
  const double start = std::chrono::duration<double>(trace.start().time_since_epoch()).count();
  const double zero = world.all_gather({&start, 1}, "the start of traces").front() - offset.seconds;
  return Trace::Clock::time_point(
      std::chrono::duration_cast<Trace::Clock::duration>(std::chrono::duration<double>(zero)));
}

}  // namespace

bool write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset) {
  const Trace::Clock::time_point zero = common_zero(trace, world, offset);
  std::optional<NewFile> file;
  // Errors are rethrown after all ranks have sent their spans, which would otherwise block.
  std::exception_ptr failure;
  const auto write = [&](const std::string& text) {
    if (failure) return;
    try {
      if (!file) file.emplace(path);
      file->write(text);
    } catch (const Error&) {
      failure = std::current_exception();
    }
  };
  if (world.rank() == 0) write("{\"traceEvents\": [\n");
  constexpr std::string_view kEnd = "\n]}\n";
  bool named = false, first = true, complete = true;
  int64_t next = 0;
  const auto give = [&]() -> std::string {
    if (!named) {
      named = true;
      return trace.names_json(offset.error > 0 ? str("clock known to ", std::ceil(offset.error * 1e6), " us")
                                               : "");
    }
    next += kSpansAtOnce;
    return trace.spans_json(next - kSpansAtOnce, kSpansAtOnce, zero);
  };
  world.collect(give, [&](int, const std::string& events) {
    const std::string text = (first ? "" : ",\n") + events;
    const int64_t size = file ? file->size() + std::ssize(text) + std::ssize(kEnd) : 0;
    if (size > kMostTraceBytes) complete = false;
    if (complete) write(text);
    first = false;
  });
  if (world.rank() != 0) return complete;
  write(std::string(kEnd));
  if (failure) std::rethrow_exception(failure);
  file->finish();
  return complete;
}

}  // namespace flatshard
