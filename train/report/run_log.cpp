#include "train/report/run_log.h"

#include <cmath>
#include <filesystem>

#include "runtime/log.h"
#include "runtime/whole_file.h"

namespace flatshard {
namespace {

double rounded_to_milliseconds(double seconds) { return std::round(seconds * 1e3) / 1e3; }

}  // namespace

RunLog::RunLog(const std::string& folder, const std::string& config, int64_t total_steps, const Past& past,
               const LogConfig& log)
    : report_path_(folder + "/report.html"),
      metrics_(folder + "/metrics.jsonl", past.lines),
      elapsed_before_(RunCurves(past.lines).elapsed_seconds),
      begin_(Clock::now()),
      report_(report_path_,
              {.name = name_of_folder(folder),
               .config = config,
               .curves = RunCurves(past.lines),
               .samples = past.samples,
               .starts = past.starts},
              total_steps) {
  warn_on_error([&] { write_whole_file(folder + "/starts.jsonl", lines_of(past.starts)); });
  if (log.tensorboard) warn_on_error([&] { events_.emplace(folder + "/tensorboard", past.lines); });
  const std::string samples = folder + "/samples.jsonl";
  if (!log.samples.empty() || !past.samples.empty())
    samples_.emplace(samples, past.samples);
  else
    std::filesystem::remove(samples);  // left by an earlier run
}

void RunLog::stamp(StepMetrics& m) const {
  const auto seconds = [](auto duration) {
    return rounded_to_milliseconds(std::chrono::duration<double>(duration).count());
  };
  m.time = seconds(std::chrono::system_clock::now().time_since_epoch());
  m.elapsed_seconds = rounded_to_milliseconds(elapsed_before_) + seconds(Clock::now() - begin_);
}

void RunLog::write(const StepMetrics& m) {
  metrics_.write(m);
  if (events_) events_->write(m);
  report_.add(m);
}

void RunLog::write(const std::vector<SampleText>& samples) {
  if (samples_) samples_->write(samples);
  report_.add(samples);
}

std::string RunLog::end(const std::string& stopped_by) {
  const auto kind = stopped_by.empty() ? PageState::Kind::finished : PageState::Kind::stopped;
  return report_.end(kind, stopped_by) ? report_path_ : "";
}

void RunLog::end_failing(const std::string& reason) { report_.end(PageState::Kind::failed, reason); }

}  // namespace flatshard
