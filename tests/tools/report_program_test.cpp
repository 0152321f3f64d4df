// The program report, on folders written by hand.

#include <filesystem>
#include <sstream>

#include "runtime/whole_file.h"
#include "tests/test.h"
#include "tools/programs.h"
#include "train/report/metrics.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

const std::string kRoot = "report_program";

std::string make_run(const std::string& name) {
  const std::string folder = kRoot + '/' + name;
  fs::create_directories(folder);
  write_whole_file(folder + "/config.toml", "[run]\ndir = \"x\"\n");
  MetricsFile(folder + "/metrics.jsonl").write({.step = 1, .data_step = 1, .loss = 2.5});
  return folder;
}

struct Ended {
  int code;
  std::string out, err;
};

Ended run(std::vector<std::string> words) {
  std::istringstream in;
  std::ostringstream out, err;
  const int code = run_report(words, {in, out, err});
  return {code, out.str(), err.str()};
}

std::string text_of(const std::string& path) { return read_whole_file(path, 1 << 20); }

}  // namespace

TEST_CASE("report writes the page of one run into its folder, and of several where it is told") {
  fs::remove_all(kRoot);
  const std::string a = make_run("a"), b = make_run("b"), other_a = make_run("others/a");
  CHECK(run({a}).out == a + "/report.html: 1 run\n");
  CHECK(text_of(a + "/report.html").find("<h1>a</h1>") != std::string::npos);
  const std::string page = kRoot + "/page.html";
  for (int i = 0; i < 2; ++i) CHECK(run({a, b, "--out", page}).out == page + ": 2 runs\n");
  CHECK(text_of(page).find(">a</span>") != std::string::npos);
  CHECK(run({a, other_a, "--out=" + page}).code == 0);
  CHECK(text_of(page).find(">" + other_a + "</span>") != std::string::npos);
}

TEST_CASE("report refuses a folder without a run and a file that is no page") {
  fs::remove_all(kRoot);
  const std::string a = make_run("a"), metrics = a + "/metrics.jsonl", before = text_of(metrics);
  Ended ended = run({a, "--out", metrics});
  CHECK(ended.code == 1);
  CHECK(ended.err ==
        "report: " + metrics + ": is not a report page, so it is not replaced; give another name\n");
  CHECK(text_of(metrics) == before);
  ended = run({a, kRoot});
  CHECK(ended.err == "report: " + kRoot + ": contains no metrics.jsonl, so it is not the folder of a run\n");
  CHECK(ended.code == 1);
  CHECK(run(std::vector<std::string>(17, a)).err == "report: 17 runs given, at most 16 can be compared\n");
  CHECK(run({}).err == "report: RUN is required; usage: report RUN [OPTIONS], see report --help\n");
  CHECK(run({"--help"}).out.find("--out FILE") != std::string::npos);
}
