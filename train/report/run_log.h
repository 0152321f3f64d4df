#pragma once
// The records that rank 0 writes: metrics.jsonl, starts.jsonl, the report page, with log.tensorboard an event
// file, and with log.samples samples.jsonl. If one cannot be written later, the run logs a warning and
// continues.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "train/config/config.h"
#include "train/report/event_file.h"
#include "train/report/live_report.h"
#include "train/report/metrics.h"

namespace flatshard {

class RunLog {
 public:
  // The metrics and samples of the steps before a resume, and the starts of the run, with this one.
  struct Past {
    std::vector<StepMetrics> lines{};
    std::vector<SampleText> samples{};
    std::vector<StartRecord> starts{};
  };
  // `config` is TOML. An Error if metrics.jsonl or samples.jsonl cannot be created.
  RunLog(const std::string& folder, const std::string& config, int64_t total_steps, const Past& past,
         const LogConfig& log);

  // Sets the time of a step that has just ended.
  void stamp(StepMetrics& m) const;
  void write(const StepMetrics& m);
  void write(const std::vector<SampleText>& samples);
  // Completes the report of a run that has made its steps or, with a reason, was stopped. Returns its path,
  // empty if it could not be written.
  std::string end(const std::string& stopped_by);
  void end_failing(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;

  std::string report_path_;
  MetricsFile metrics_;
  std::optional<EventFile> events_;
  std::optional<SamplesFile> samples_;
  double elapsed_before_;
  Clock::time_point begin_;
  LiveReport report_;
};

}  // namespace flatshard
