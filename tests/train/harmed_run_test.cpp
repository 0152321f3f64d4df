// Runs whose environment fails: output or terminal closed, data changed, disk full.

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/rng.h"
#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "text/data/token_file.h"
#include "train/report/metrics.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr const char* kEndless = " --train.steps=1000000 --schedule.kind=constant ";
constexpr const char* kMetrics = "runs/default/metrics.jsonl";

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Overwrites the tokens from a position on with one outside the vocabulary.
void spoil(const std::string& path, int64_t position) {
  fs::resize_file(path, static_cast<uintmax_t>(content_bytes(InputFile(path))));  // without checksums
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const int64_t tokens = TokenFile(path).size();
  file.seekp(48 + 2 * position);
  for (int64_t i = position; i < tokens; ++i) file.write("\xff\x00", 2);
}

}  // namespace

TEST_CASE("a run whose reader and terminal close continues, and saves at SIGHUP") {
  const test::Workshop workshop("no_reader");
  const test::Finished run =
      test::run_command(str("cd no_reader; (@train config.toml", kEndless,
                            "--data.eval= --train.eval_every=0 & echo $! > pid; wait $!; echo $? > code) 2> "
                            "err.txt | head -3 > out.txt & "
                            "until [ -f ",
                            kMetrics, " ] && [ $(wc -l < ", kMetrics,
                            ") -gt 30 ]; do [ -f code ] && break; sleep 0.05; done; kill -HUP $(cat pid); "
                            "kill -HUP $(cat pid); wait; cat code err.txt"),
                        100);
  CAPTURE(run.output);
  CHECK(run.output.starts_with("0\n"));
  CHECK(run.output.find("warning: cannot write standard output") != std::string::npos);
  const std::vector<StepMetrics> lines = read_metrics(workshop.file(kMetrics));
  CHECK(lines.size() > 30);
  CHECK(text_of(workshop.file("runs/default/latest")) == str("step-", lines.back().step, '\n'));
}

TEST_CASE("a run started without standard output writes no output into other files") {
  const test::Workshop workshop("no_output");
  const test::Finished run = test::run_command("cd no_output; @train config.toml >&- 2> err.txt");
  CHECK(run.exit_code == 0);
  CHECK(read_metrics(workshop.file(kMetrics)).size() == 6);
}

TEST_CASE("failures to write files that no later run reads are warnings") {
  const test::Workshop workshop("no_room");
  for (const char* name : {"step1.txt", "report.html", "trace.json"})
    fs::create_directories(workshop.file(str("runs/default/", name)));
  std::ofstream(workshop.file("runs/default/config.toml"))  // marks the folder as a run's
      << "# The config of the run in this folder, as train resolved it.\n";
  const test::Finished run = test::run_command(
      "cd no_room; DISK_FAULT_IN=metrics.jsonl DISK_FAULT='full 5' LD_PRELOAD=@libdisk_faults.so @train "
      "config.toml --run.trace=true --checkpoint.save_every=3");
  CAPTURE(run.output);
  CHECK(run.exit_code == 0);
  for (const char* name : {"step1.txt", "metrics.jsonl", "report.html", "trace.json"})
    CHECK(run.output.find(str("warning: runs/default/", name, ": cannot write: ")) != std::string::npos);
  CHECK(read_metrics(workshop.file(kMetrics)).size() == 2);
  CHECK(text_of(workshop.file("runs/default/latest")) == "step-6\n");
}

TEST_CASE("a failing run completes the checkpoint that it is writing") {
  for (const int ranks : {1, 2}) {
    if (const std::string reason = test::no_ranks_because(); ranks > 1 && !reason.empty())
      return test::skip(reason);
    const test::Workshop workshop(str("failing", ranks));
    spoil(workshop.file("corpus.tok"), 129);  // on all ranks in the second step
    const test::Finished run = workshop.train(
        ranks, "--data.shuffle=false --data.eval= --train.eval_every=0 --checkpoint.save_every=1");
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find("corpus.tok: token 255 at ") != std::string::npos);
    CHECK(run.output.find("saved     runs/default/step-1: ") != std::string::npos);
    CHECK(text_of(workshop.file("runs/default/latest")) == "step-1\n");
  }
}

TEST_CASE("data truncated during a run end it with file name and sizes") {
  for (const std::string part : {"train", "eval"}) {
    const test::Workshop workshop("cut_" + part);
    fs::copy_file(workshop.file("corpus.tok"), workshop.file("cut.tok"));
    const test::Finished run = test::run_command(
        str("cd cut_", part, "; (exec @train config.toml", kEndless, "--data.", part,
            "=cut.tok > out.txt 2>&1) & until [ -s ", kMetrics,
            " ] || ! kill -0 $!; do sleep 0.05; done; : > cut.tok; wait $!; echo $?; cat out.txt"),
        100);
    CAPTURE(run.output);
    CHECK(run.output.starts_with("1\n"));
    CHECK(run.output.find("train: cut.tok: has 0 bytes, had ") != std::string::npos);
  }
}

TEST_CASE("a signal during an evaluation stops all ranks there, without a loss") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("evaluating");
  TokenWriter writer(workshop.file("long.tok"), test::Workshop::kVocab);
  writer.add_document(std::vector<int32_t>(4'000'000, 1));  // takes minutes
  writer.finish();
  test::Job job("evaluating", str("-np 2 @train config.toml", kEndless,
                                  "--data.eval=long.tok --train.eval_every=1 --checkpoint.save_every=1"));
  const std::vector<pid_t> pids = job.ranks_after("memory    of rank 0", 2);
  REQUIRE(test::eventually([&] { return fs::exists(workshop.file("runs/default/step1.txt")); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  kill(pids[1], SIGTERM);
  const test::Finished run = job.wait();
  CAPTURE(run.output);
  CHECK(run.exit_code == 0);
  CHECK(run.output.find("stopped   after step 1 of 1,000,000: rank 1 received SIGTERM") != std::string::npos);
  const std::vector<StepMetrics> lines = read_metrics(workshop.file(kMetrics));
  REQUIRE(lines.size() == 1);
  CHECK_FALSE(lines[0].eval_loss);
  CHECK(text_of(workshop.file("runs/default/latest")) == "step-1\n");
}
