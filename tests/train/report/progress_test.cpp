#include "train/report/progress.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <sstream>

#include "runtime/text.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const StepMetrics kStep{.step = 450,
                        .loss = 3.24117,
                        .grad_norm = 1.2345,
                        .lr = 3e-4,
                        .tokens = 3'686'400,
                        .tokens_per_second = 51'200,
                        .step_seconds = 0.16,
                        .mfu = 0.412,
                        .mfu_causal = 0.3977,
                        .memory_bytes = 14'900'000};

// What a run of these steps prints.
std::string shown(const std::vector<StepMetrics>& steps, bool terminal, int64_t total = 1000) {
  std::ostringstream out;
  Progress progress(total, terminal, out);
  for (const StepMetrics& m : steps) progress.step(m);
  progress.finish();
  return out.str();
}

// Its only line, without the line's end.
std::string line_of(const StepMetrics& m, int64_t total = 1000) {
  const std::string text = shown({m}, false, total);
  REQUIRE(text.ends_with('\n'));
  return text.substr(0, text.size() - 1);
}

std::string time_left(const std::vector<double>& step_seconds, int64_t total) {
  std::vector<StepMetrics> steps;
  for (const double s : step_seconds)
    steps.push_back({.step = static_cast<int64_t>(steps.size()) + 1, .step_seconds = s});
  const std::string text = shown(steps, false, total);
  const std::string last = text.substr(text.rfind("ETA") + 3);
  return last.substr(last.find_first_not_of(' '), last.find("  ", 8) - last.find_first_not_of(' '));
}

// A terminal with one visible row: its text, and the rows above it.
struct Screen {
  std::vector<std::string> above;
  std::string row;
  size_t column = 0, width;
  bool wraps = true;

  explicit Screen(size_t columns) : width(columns) {}

  void show(const std::string& text) {
    for (size_t i = 0; i < text.size(); ++i) {
      const auto is_code = [&](const std::string& code) {
        if (text.compare(i, code.size(), code) != 0) return false;
        i += code.size() - 1;
        return true;
      };
      if (is_code("\x1b[K"))
        row.resize(column);
      else if (is_code("\x1b[?7l"))
        wraps = false;
      else if (is_code("\x1b[?7h"))
        wraps = true;
      else
        put(text[i]);
    }
  }

 private:
  void put(char c) {
    if (c == '\r') {
      column = 0;
    } else if (c == '\n') {
      above.push_back(row);
      row.clear(), column = 0;
    } else {
      REQUIRE(c >= ' ');
      if (column == width) {
        REQUIRE_FALSE(wraps);
        column = width - 1;
      }
      if (row.size() <= column) row.resize(column + 1, ' ');
      row[column++] = c;
    }
  }
};

}  // namespace

TEST_CASE("the line shows all metrics of a step") {
  CHECK(line_of(kStep) ==
        " 450/1000  loss  3.2412  grad 1.23  lr 3.00e-4  51.2k tok/s  ETA    1:28   160 ms  14.2 MiB  "
        "mfu 41.2% causal 39.8%");
}

TEST_CASE("a utilization that is an upper bound is shown as one") {
  StepMetrics m = kStep;
  m.mfu_is_bound = true;
  CHECK(line_of(m).ends_with("  mfu<41.2% causal<39.8%"));
}

TEST_CASE("the line fits 120 columns up to a million steps") {
  StepMetrics m = kStep;
  for (const int64_t step : {1, 99, 100'000, 999'999})
    for (const double scale : {1e-2, 1.0, 9.9999, 20.0})
      for (const int64_t bytes : {int64_t{900}, int64_t{537'000'000}, int64_t{138} << 30}) {
        m.step = step, m.memory_bytes = bytes;
        m.loss = 1.08 * scale, m.grad_norm = 49.999 * scale, m.lr = 5e-4 * scale;
        m.tokens_per_second = 49'975 * scale, m.step_seconds = 0.0499 * scale;
        m.mfu_is_bound = scale > 1;
        const std::string line = line_of(m, 999'999);
        CAPTURE(line);
        CHECK(line.size() <= 120);
      }
}

TEST_CASE("columns keep their positions while the numbers change") {
  const size_t width = line_of(kStep).size();
  StepMetrics m = kStep;
  for (const double scale : {1e-9, 1e-4, 1e-3, 0.01, 0.0999, 0.5, 0.995, 3.0, 9.99, 31.0, 99.99, 240.0}) {
    m.loss = 12 * scale, m.grad_norm = 4.16 * scale, m.tokens_per_second = 4160 * scale;
    m.lr = std::pow(10.0, -1 - scale / 40), m.step_seconds = 0.0416 * std::max(scale, 1e-4);
    m.mfu = m.mfu_causal = scale / 241, m.step = 1 + std::lround(4 * scale);
    const std::string line = line_of(m);
    CAPTURE(line);
    CHECK(line.size() == width);
    for (const char* word : {"  loss ", "  grad ", "  lr ", " tok/s ", "  mfu ", " causal ", "  ETA "})
      CHECK(line.find(word) == line_of(kStep).find(word));
  }
}

TEST_CASE("non-finite values are shown as such and are no wider") {
  StepMetrics m = kStep;
  m.loss = -std::numeric_limits<double>::quiet_NaN(), m.grad_norm = HUGE_VAL;
  const std::string line = line_of(m);
  CHECK(line.find("loss     nan  grad  inf  lr") != line.npos);
  CHECK(line.size() == line_of(kStep).size());
}

TEST_CASE("without a terminal there is one plain line for each step") {
  const std::string text = shown({kStep, kStep, kStep}, false);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  for (const char c : text) CHECK((c == '\n' || (c >= ' ' && c <= '~')));
}

TEST_CASE("evaluations and skipped steps have lines of their own") {
  StepMetrics evaluated = kStep, skipped = kStep, without_targets = kStep;
  evaluated.eval_loss = 3.5;
  skipped.skipped = without_targets.skipped = true;
  skipped.grad_norm = HUGE_VAL, skipped.loss_scale = 65536;
  without_targets.grad_norm = 0;
  const std::string text = shown({evaluated, skipped, without_targets}, false);
  CHECK(text.find("\nstep 450: eval loss 3.5000\n") != text.npos);
  CHECK(text.find("\nskipped a step after step 450: the gradient norm is inf, loss scale 65536\n") !=
        text.npos);
  CHECK(text.ends_with("\nskipped a step after step 450: no update was made\n"));
}

TEST_CASE("a terminal shows only the last line, with evaluations above it, at any width") {
  StepMetrics evaluated = kStep, longer = kStep;
  evaluated.eval_loss = 3.5;
  longer.loss = 1e300, longer.memory_bytes = INT64_MAX, longer.step = INT64_MAX;
  for (const size_t width : {200, 119, 118, 117, 80, 40}) {
    CAPTURE(width);
    Screen screen(width);
    std::ostringstream out;
    Progress progress(1000, true, out);
    for (const StepMetrics& m : {kStep, evaluated, longer, kStep}) progress.step(m);
    screen.show(out.str());
    const std::string expected = line_of(kStep) + ' ';
    CHECK(screen.row.substr(0, width - 1) == expected.substr(0, width - 1));
    CHECK(screen.row.back() == ' ');  // the cut text is erased
    REQUIRE(screen.above.size() == 1);
    CHECK(screen.above[0] == "step 450: eval loss 3.5000");
    CHECK(screen.wraps);
  }
}

TEST_CASE("the terminal's line is ended once, also when a run ends early") {
  std::ostringstream out;
  {
    Progress progress(1000, true, out);
    progress.finish();
    CHECK(out.str().empty());
    progress.step(kStep);
    CHECK_FALSE(out.str().ends_with('\n'));
  }
  CHECK(out.str().ends_with('\n'));
  CHECK(shown({kStep}, true) == out.str());
}

TEST_CASE("the time left follows the median of the latest steps") {
  CHECK(time_left({100, 1, 1}, 63) == "1:00");
  CHECK(time_left({1, 1, 1, 1, 50}, 10) == "0:05");
  std::vector<double> faster(40, 9.0);
  faster.insert(faster.end(), 31, 2.0);
  CHECK(time_left(faster, 71) == "0:00");
  CHECK(time_left(faster, 71 + 45) == "1:30");
}

TEST_CASE("quantities are formatted with three digits") {
  CHECK(human_count(0) == "0.00");
  CHECK(human_count(1234) == "1.23k");
  CHECK(human_count(9.996) == "10.0");
  CHECK(human_count(99.96) == "100");
  CHECK(human_count(999.4) == "999");
  CHECK(human_count(999.6) == "1.00k");
  CHECK(human_count(1.5e13) == "15.0T");
  CHECK(human_seconds(0.00001234) == "12.3 us");
  CHECK(human_seconds(0.16) == "160 ms");
  CHECK(human_seconds(0.9996) == "1.00 s");
  CHECK(human_seconds(1234) == "1234 s");
  CHECK(human_duration(0) == "0:00");
  CHECK(human_duration(65) == "1:05");
  CHECK(human_duration(3599.6) == "1:00:00");
  CHECK(human_duration(3933) == "1:05:33");
  CHECK(human_duration(12 * 3600 + 300) == "12h 05m");
  CHECK(human_duration(12 * 86400 + 3 * 3600) == "12d 03h");
  CHECK(human_duration(200 * 86400) == "200 days");
  CHECK(human_duration(HUGE_VAL) == "?");
}

TEST_CASE("a number of bytes is written in powers of 1000") {
  for (const auto& [text, bytes] : std::map<std::string, int64_t>{{"1", 1},
                                                                  {"12B", 12},
                                                                  {"3KB", 3000},
                                                                  {"200MB", 200'000'000},
                                                                  {"5GB", 5'000'000'000},
                                                                  {"3KiB", 3072},
                                                                  {"2GiB", int64_t{1} << 31},
                                                                  {"9223372TB", 9'223'372'000'000'000'000}})
    CHECK(parse_bytes("key", text) == bytes);
  CHECK(test::error_of([] { parse_bytes("key", "9223373TB"); }) ==
        "key is \"9223373TB\", must be a positive number of B, KB, MB, GB or TB (powers of 1000), or of KiB, "
        "MiB, GiB or TiB, such as 5GB");
}
