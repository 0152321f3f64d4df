#include "train/report/run_log.h"

#include <filesystem>

#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

const std::string kFolder = "run_log_test";

std::string text_of(const std::string& name) { return read_whole_file(kFolder + '/' + name, 1 << 20); }

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("the report of a run exists before the first step and ends with the run") {
  fs::remove_all(kFolder);
  fs::create_directory(kFolder);
  write_whole_file(kFolder + "/report.html.0123456789abcdef.tmp", "of a run that was killed");
  RunLog log(kFolder, "[run]\n", 9, {}, LogConfig{});
  CHECK_FALSE(fs::exists(kFolder + "/report.html.0123456789abcdef.tmp"));
  CHECK(contains(text_of("report.html"), "There are no steps yet."));
  CHECK(contains(text_of("report.html"), "data-refresh=\"2\"><b>running</b> step 0 of 9<"));
  log.write({.step = 1, .data_step = 1, .loss = 2.5});
  CHECK(log.end("rank 0 received SIGINT") == kFolder + "/report.html");
  CHECK(contains(text_of("report.html"), "<b>stopped</b> step 1 of 9<span></span>: rank 0 received SIGINT<"));
  CHECK_FALSE(contains(text_of("report.html"), "data-refresh="));
  log.end("");
  CHECK(contains(text_of("report.html"), "<b>finished</b> step 1 of 9<"));
  log.end_failing("the disk is full");
  CHECK(contains(text_of("report.html"), "<b>failed</b> step 1 of 9<span></span>: the disk is full<"));
  CHECK_FALSE(fs::exists(kFolder + "/tensorboard"));
}

TEST_CASE("lines have the time, and a resumed run counts on from its last line") {
  fs::remove_all(kFolder);
  fs::create_directory(kFolder);
  StepMetrics before{.step = 1, .data_step = 1}, after{.step = 2, .data_step = 2};
  RunLog(kFolder, "", 9, {}, LogConfig{}).stamp(before);
  CHECK(*before.time > 1.7e9);
  CHECK(*before.elapsed_seconds >= 0);
  CHECK(*before.elapsed_seconds < 1000);
  before.elapsed_seconds = 5000;
  RunLog log(kFolder, "", 9, {.lines = {before}}, LogConfig{.tensorboard = true});
  log.stamp(after);
  CHECK(*after.elapsed_seconds >= 5000);
  CHECK(*after.elapsed_seconds < 6000);
  log.write(after);
  CHECK(read_metrics(kFolder + "/metrics.jsonl").size() == 2);
  CHECK(fs::exists(kFolder + "/tensorboard"));
}

TEST_CASE("a report and event files that cannot be written do not end the run") {
  fs::remove_all(kFolder);
  fs::create_directories(kFolder + "/report.html");
  write_whole_file(kFolder + "/tensorboard", "a file");
  RunLog log(kFolder, "", 9, {}, LogConfig{.tensorboard = true});
  log.write({.step = 1, .data_step = 1});
  CHECK(log.end("").empty());
  CHECK(read_metrics(kFolder + "/metrics.jsonl").size() == 1);
}
