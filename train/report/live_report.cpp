#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/log.h"
#include "runtime/reason.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/report/run_log.h"

namespace flatshard {
namespace {

using namespace std::chrono_literals;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The processor time of this thread. On a busy machine, writing may take much longer.
std::chrono::nanoseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// A run that was killed may have left a page that it was writing.
void remove_unfinished(const std::filesystem::path& page) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(page.parent_path(), ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(page.filename().string() + '.') && name.ends_with(".tmp"))
      std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

LiveReport::LiveReport(std::string path, ReportedRun run, int64_t total_steps)
    : path_(std::move(path)),
      total_steps_(total_steps),
      page_{std::move(run)},
      curves_(page_.front().curves),
      samples_(page_.front().samples) {
  remove_unfinished(path_);
  write(PageState::Kind::running, "", 1s);  // the page exists before the first step
  try {
    thread_ = std::thread([this] { refresh(); });
  } catch (const std::system_error& error) {
    log_warning(reason_of(error), "; the report is not refreshed during the run");
  }
}

LiveReport::~LiveReport() { stop(); }

void LiveReport::stop() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void LiveReport::add(const StepMetrics& m) {
  const std::lock_guard lock(mutex_);
  curves_.add(m);
}

void LiveReport::add(const std::vector<SampleText>& samples) {
  const std::lock_guard lock(mutex_);
  samples_.insert(samples_.end(), samples.begin(), samples.end());
}

bool LiveReport::end(PageState::Kind kind, const std::string& reason) {
  stop();
  return write(kind, reason, 0s);
}

// The page states the time until the next one, so the interval is decided before writing.
void LiveReport::refresh() {
  const Clock::time_point begin = Clock::now();
  Clock::duration interval = 1s, cost = 0s;
  for (std::unique_lock lock(mutex_); !ended_.wait_for(lock, interval, [&] { return ends_; });) {
    lock.unlock();
    interval = std::max(std::clamp<Clock::duration>((Clock::now() - begin) / 10, 1s, 10s), 100 * cost);
    const Clock::duration before = processor_time();
    write(PageState::Kind::running, "", interval);
    cost = processor_time() - before;
    lock.lock();
  }
}

// The page reloads itself a little later than the next one is due.
bool LiveReport::write(PageState::Kind kind, const std::string& reason, Clock::duration interval) {
  try {
    {
      const std::lock_guard lock(mutex_);
      page_.front().curves = curves_;
      page_.front().samples = samples_;
    }
    page_.front().timeline = read_timeline(std::filesystem::path(path_).parent_path().string());
    const PageState state{.kind = kind,
                          .progress = str("step ", with_commas(page_.front().curves.last.step), " of ",
                                          with_commas(total_steps_)),
                          .reason = reason,
                          .written = seconds_since_1970(),
                          .refresh_seconds = std::chrono::duration<double>(interval).count() + 1};
    write_whole_file(path_, report_page(page_, state));
    return true;
  } catch (const std::exception& error) {
    if (!std::exchange(warned_, true))
      log_warning(reason_of(error), "; the run continues without its report");
    return false;
  }
}

}  // namespace flatshard
