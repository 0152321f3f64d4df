#include "train/report/trace_file.h"

#include <cmath>
#include <exception>
#include <optional>

#include "runtime/check.h"
#include "runtime/log.h"
#include "runtime/whole_file.h"
#include "train/report/trace_picture.h"

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

void write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset) {
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
  bool named = false, first = true;
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
    write((first ? "" : ",\n") + events);
    first = false;
  });
  if (world.rank() != 0) return;
  write("\n]}\n");
  if (failure) std::rethrow_exception(failure);
  file->finish();
}

void write_trace_files(const std::string& folder, const Trace& trace, World& world,
                       const ClockOffset& offset) {
  // One after the other, so that a rank that cannot write the first still takes part in the second.
  warn_on_error([&] { write_trace(folder + "/trace.json", trace, world, offset); });
  warn_on_error([&] { write_trace_picture(folder + "/overlap.svg", trace, world, offset); });
}

}  // namespace flatshard
