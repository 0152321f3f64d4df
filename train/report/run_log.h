#pragma once
// What rank 0 records of every step: metrics.jsonl, the report page and, with log.tensorboard, an event file.
// Losing any of them costs a warning.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "train/report/event_file.h"
#include "train/report/live_report.h"
#include "train/report/metrics.h"

namespace flatshard {

class RunLog {
 public:
  // `config` is TOML, and `lines` are those of the steps before a resume. An Error if metrics.jsonl cannot be
  // created.
  RunLog(const std::string& folder, const std::string& config, int64_t total_steps,
         const std::vector<StepMetrics>& lines, bool tensorboard);

  // Sets the time of a step that has just ended.
  void stamp(StepMetrics& m) const;
  void write(const StepMetrics& m);
  // Completes the report of a run that has made its steps or, with a reason, was stopped. Returns its path,
  // empty if it could not be written.
  std::string end(const std::string& stopped_by);
  void end_failing(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;

  std::string report_path_;
  MetricsFile metrics_;
  std::optional<EventFile> events_;
  double elapsed_before_;
  Clock::time_point begin_;
  LiveReport report_;
};

}  // namespace flatshard
