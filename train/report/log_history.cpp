#include "train/report/log_history.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "runtime/check.h"
#include "runtime/log.h"

namespace flatshard {
namespace {

int64_t stretch_length(int64_t data_steps) {
  int64_t length = 1;
  while ((data_steps - 1) / length >= kStretches) length *= 2;
  return length;
}

bool is_better(const StepMetrics& a, const StepMetrics& b) {
  const auto loss = [](const StepMetrics& m) {
    return m.eval_loss && std::isfinite(*m.eval_loss) ? *m.eval_loss : HUGE_VAL;
  };
  return loss(a) < loss(b);
}

bool is_same_step(const StepMetrics& a, const StepMetrics& b) {
  const bool same_loss = a.loss == b.loss || (std::isnan(a.loss) && std::isnan(b.loss));
  return a.step == b.step && a.tokens == b.tokens && same_loss;
}

}  // namespace

void add_line(std::vector<StepMetrics>& history, const StepMetrics& line) {
  history.push_back(line);
  const int64_t length = stretch_length(line.data_step);
  if (length == 1) return;
  auto kept = history.begin();
  for (auto begin = history.begin(); begin != history.end();) {
    const int64_t stretch = (begin->data_step - 1) / length;
    const auto end = std::find_if(
        begin, history.end(), [&](const StepMetrics& m) { return (m.data_step - 1) / length != stretch; });
    const auto best = std::min_element(begin, end, is_better), last = end - 1;
    if (best != last && is_better(*best, *last)) *kept++ = *best;
    *kept++ = *last;
    begin = end;
  }
  history.erase(kept, history.end());
}

std::vector<StepMetrics> lines_before(const std::vector<StepMetrics>& history, int64_t data_step,
                                      const std::string& path) {
  if (!std::filesystem::exists(path)) return history;
  std::map<int64_t, StepMetrics> lines;  // lines by data_step
  for (const StepMetrics& m : history) lines.emplace(m.data_step, m);
  try {
    for (const StepMetrics& m : read_metrics_until(path, data_step)) {
      const auto [known, is_new] = lines.emplace(m.data_step, m);
      check(is_new || is_same_step(known->second, m), path, ": step ", m.step,
            " differs from the checkpoint's history");
      known->second = m;  // the file's line also has the time of saving
    }
  } catch (const Error& error) {
    log_warning(error.what(), "; metrics.jsonl starts with the checkpoint's history");
    return history;
  }
  std::vector<StepMetrics> in_order;
  for (const auto& line : lines) in_order.push_back(line.second);
  return in_order;
}

std::vector<StepMetrics> lines_after(int64_t data_step, const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  try {
    std::vector<StepMetrics> lines = read_latest_metrics(path);
    std::erase_if(lines, [&](const StepMetrics& m) { return m.data_step <= data_step; });
    return lines;
  } catch (const Error&) {
    return {};  // lines_before() warns of it
  }
}

}  // namespace flatshard
