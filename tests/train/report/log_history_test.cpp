#include "train/report/log_history.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "runtime/log.h"
#include "tests/test.h"
#include "train/save/train_state.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr char kPath[] = "log_history_test.jsonl";

StepMetrics line_of(int64_t data_step) {
  StepMetrics m{.step = data_step - data_step / 10, .data_step = data_step, .tokens = 64 * data_step};
  m.loss = 3 + std::sin(static_cast<double>(data_step));
  m.skipped = data_step % 10 == 0;
  return m;
}

// With an evaluation every so many steps, the best of them at `best`.
StepMetrics evaluated(int64_t data_step, int64_t every, int64_t best) {
  StepMetrics m = line_of(data_step);
  if (data_step % every == 0)
    m.eval_loss = data_step == best ? 1.0 : 2 + 1.0 / static_cast<double>(data_step);
  return m;
}

bool has(const std::vector<StepMetrics>& lines, int64_t data_step) {
  return std::any_of(lines.begin(), lines.end(), [&](const auto& m) { return m.data_step == data_step; });
}

std::string text_of(const std::vector<StepMetrics>& lines) {
  std::string text;
  for (const StepMetrics& m : lines) text += to_json(m) + '\n';
  return text;
}

TrainState state_after(int64_t data_step) {
  TrainState state{.data_step = data_step};
  for (int64_t i = 1; i <= data_step; ++i) add_line(state.log_history, line_of(i));
  return state;
}

}  // namespace

TEST_CASE("a history keeps every line of a short run and a sample of a long one") {
  for (const int64_t every : {1, 7, 1000}) {
    std::vector<StepMetrics> history;
    for (int64_t i = 1; i <= 20'000; ++i) {
      add_line(history, evaluated(i, every, 7000));
      const size_t most = every < 1000 ? kMostHistoryLines : kStretches + 20;
      REQUIRE(history.size() <= most);
      REQUIRE(history.size() >= static_cast<size_t>(std::min(i, kStretches / 2)));
      if (i <= kStretches) REQUIRE(std::ssize(history) == i);
      REQUIRE(history.back().data_step == i);
      REQUIRE(std::is_sorted(history.begin(), history.end(),
                             [](const auto& a, const auto& b) { return a.data_step < b.data_step; }));
    }
    CHECK(has(history, 7000));  // the best evaluation
    CHECK(has(history, 64));    // the end of the first stretch of 64
    // All evaluations further apart than a stretch are kept.
    if (every == 1000)
      for (int64_t i = every; i <= 20'000; i += every) CHECK(has(history, i));
  }
}

TEST_CASE("a history does not depend on where the run was stopped and resumed") {
  std::vector<StepMetrics> whole, parts;
  for (int64_t i = 1; i <= 3000; ++i) {
    StepMetrics m = evaluated(i, 5, 35);
    if (i == 35) m.loss = std::numeric_limits<double>::quiet_NaN();
    add_line(whole, m);
    add_line(parts, m);
    if (i % 211) continue;
    TrainState state{.data_step = i};
    state.log_history = parts;
    parts = parse_train_state(to_json(state), "state").log_history;
  }
  CHECK(text_of(parts) == text_of(whole));
  CHECK(whole.size() < 3000);
}

TEST_CASE("a non-finite evaluation loss leaves a readable state") {
  for (const double loss : {HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN()}) {
    TrainState state;
    state.eval_loss = loss;
    const TrainState read = parse_train_state(to_json(state), "state");
    CHECK((read.eval_loss == loss || (std::isnan(loss) && std::isnan(read.eval_loss.value()))));
  }
}

TEST_CASE("metrics resume from the lines of the run's own file, otherwise from the checkpoint's history") {
  configure_log(LogLevel::quiet);
  const TrainState state = state_after(2000);
  std::vector<StepMetrics> all;
  for (int64_t i = 1; i <= 2010; ++i) all.push_back(line_of(i)), all.back().saved_step = i;
  const auto lines_with = [&](const std::vector<StepMetrics>& file, const std::string& end = "") {
    MetricsFile(kPath, file);
    std::ofstream(kPath, std::ios::app | std::ios::binary) << end;
    return text_of(lines_before(state.log_history, state.data_step, kPath));
  };
  const std::string own = text_of(state.log_history);
  const std::vector<StepMetrics> whole(all.begin(), all.begin() + 2000);
  CHECK(lines_with(all) == text_of(whole));
  CHECK(lines_with(all, "garbage\n") == text_of(whole));  // after the lines that count

  // The end never reached the disk: the file's lines, and the checkpoint's for the rest.
  const std::vector<StepMetrics> begun(all.begin(), all.begin() + 1000);
  std::vector<StepMetrics> joined = begun;
  for (const StepMetrics& m : state.log_history)
    if (m.data_step > 1000) joined.push_back(m);
  CHECK(lines_with(begun) == text_of(joined));
  CHECK(lines_with(begun, to_json(all[1000]).substr(0, 40)) == text_of(joined));

  CHECK(lines_with(begun, "garbage\n") == own);
  std::vector<StepMetrics> other = all;
  other[state.log_history.front().data_step - 1].loss += 1;
  CHECK(lines_with(other) == own);
  fs::remove(kPath);
  CHECK(text_of(lines_before(state.log_history, state.data_step, kPath)) == own);
  configure_log(LogLevel::info);
}
