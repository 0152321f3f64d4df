#pragma once
// The records that rank 0 writes: metrics.jsonl, starts.jsonl, the report page, with log.tensorboard an event
// file, and with log.samples samples.jsonl. If one cannot be written later, the run logs a warning and
// continues.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "train/config/config.h"
#include "train/report/event_file.h"
#include "train/report/metrics.h"
#include "train/report/report.h"

namespace flatshard {

// The report page of a run while it is alive. A thread writes it, at first every second and later every 10
// seconds, and never more often than costs 1% of a processor. A step only hands over its metrics, and a
// failure to write costs one warning.
class LiveReport {
 public:
  // `run` has the curves and samples of the steps before a resume.
  LiveReport(std::string path, ReportedRun run, int64_t total_steps);
  ~LiveReport();  // leaves the page as it is if end() was not called
  LiveReport(const LiveReport&) = delete;
  LiveReport& operator=(const LiveReport&) = delete;

  void add(const StepMetrics& m);
  void add(const std::vector<SampleText>& samples);
  // Writes the page of the ended run. Returns whether the page is there.
  bool end(PageState::Kind kind, const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;

  void refresh();
  void stop();
  bool write(PageState::Kind kind, const std::string& reason, Clock::duration interval);

  const std::string path_;
  const int64_t total_steps_;
  std::vector<ReportedRun> page_;  // one run; its curves and samples are as of the last writing
  std::mutex mutex_;               // guards the members below
  std::condition_variable ended_;
  bool ends_ = false;
  RunCurves curves_;
  std::vector<SampleText> samples_;
  bool warned_ = false;
  std::thread thread_;
};

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
