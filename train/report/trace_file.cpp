#include "train/report/trace_file.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

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

// The file while it is written.
class Unfinished {
 public:
  explicit Unfinished(const std::string& path)
      : path_(path), out_(unfinished_name(path), std::ios::binary | std::ios::trunc) {
    add("{\"traceEvents\": [\n");
  }
  void add(const std::string& text) {
    out_ << text;
    if (out_.good()) return;
    const int reason = errno;
    std::error_code ignored;
    std::filesystem::remove(unfinished_name(path_), ignored);
    fail(str(path_, ": cannot write: ", std::strerror(reason)));
  }
  void finish() {
    add("\n]}\n");
    out_.close();
    finish_file(path_);
  }

 private:
  std::string path_;
  std::ofstream out_;
};

}  // namespace

void write_trace(const std::string& path, const Trace& trace, World& world, const ClockOffset& offset) {
  const Trace::Clock::time_point zero = common_zero(trace, world, offset);
  std::optional<Unfinished> file;
  if (world.rank() == 0) file.emplace(path);
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
    file->add((first ? "" : ",\n") + events);
    first = false;
  });
  if (file) file->finish();
}

}  // namespace flatshard
