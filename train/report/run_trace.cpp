#include "train/report/run_trace.h"

#include <algorithm>
#include <utility>

#include "comm/trace_file.h"
#include "runtime/check.h"
#include "runtime/log.h"
#include "runtime/text.h"
#include "train/report/trace_picture.h"

namespace flatshard {

RunTrace::RunTrace(const std::optional<TraceSteps>& steps, std::string folder, int64_t total_steps,
                   World& world)
    : steps_(steps), folder_(std::move(folder)), world_(world), trace_(world.rank()) {
  if (!steps_) return;
  if (steps_->first)
    check(*steps_->first <= total_steps, "run.trace begins with step ", *steps_->first,
          ", but the run has only ", total_steps);
  clock_ = clock_offset(world);
  trace_.set_recording(false);
}

void RunTrace::begin_step(int64_t data_step) {
  if (!steps_ || written_) return;
  if (!row_) row_ = trace_.add_row("steps");  // below the rows of the streams
  if (!steps_->first) steps_->first = data_step;
  trace_.set_recording(data_step >= *steps_->first && data_step < *steps_->first + steps_->count);
  begin_ = Trace::Clock::now();
}

void RunTrace::end_step(int64_t data_step) {
  if (!is_recording()) return;
  trace_.add_span(*row_, str("step ", data_step), begin_, Trace::Clock::now());
  if (!first_) first_ = data_step;
  last_ = data_step;
}

std::string RunTrace::between_steps() {
  if (!is_recording()) return "";
  trace_.collect();
  const bool is_last = last_ + 1 == *steps_->first + steps_->count;
  return has_space_for_another() && !is_last ? "" : write();
}

std::string RunTrace::finish() {
  if (!steps_ || written_) return "";
  trace_.collect();
  if (first_) return write();
  log_warning("run.trace: the run made none of the steps to trace, so there is no trace");
  return "";
}

bool RunTrace::has_space_for_another() {
  const auto mine =
      static_cast<double>(trace_.json_bytes()) + static_cast<double>(trace_.names_json().size());
  double all = 0;
  for (const double bytes : world_.all_gather({&mine, 1}, "the sizes of traces")) all += bytes;
  largest_step_ = std::max(largest_step_, all - std::exchange(bytes_, all));
  return bytes_ + largest_step_ <= static_cast<double>(kMostTraceBytes);
}

std::string RunTrace::write() {
  written_ = true;
  trace_.set_recording(false);
  const std::string path = folder_ + "/trace.json";
  std::string line;
  // The files are written separately, so that a rank that cannot write the first still takes part in the
  // second.
  warn_on_error([&] {
    const bool complete = write_trace(path, trace_, world_, clock_);
    line = str("trace     ", path, ": steps ", with_commas(first_), " to ", with_commas(last_));
    if (!complete) line += ", without the last spans";
    if (!complete || last_ + 1 < *steps_->first + steps_->count)
      line += str(", as it is limited to ", kMostTraceBytes / 1'000'000, " MB");
  });
  warn_on_error([&] {
    write_trace_picture(folder_ + "/overlap.svg", trace_, world_, clock_,
                        predicted_ ? &*predicted_ : nullptr);
  });
  return world_.rank() == 0 ? line : "";
}

}  // namespace flatshard
