#pragma once
// The report page of a run while it is alive. A thread writes it, at first every second and later every 10
// seconds, and never more often than costs 1% of a processor. A step only hands over its metrics, and a
// failure to write costs one warning.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "train/report/report.h"

namespace flatshard {

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

}  // namespace flatshard
