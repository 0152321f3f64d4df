// Jobs that train keeps running with --restarts, with ranks that are killed.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>

#include "runtime/check.h"
#include "tests/checkpoint_content.h"
#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/save/save_times.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

// The process of a rank of a job that runs in this folder.
std::optional<pid_t> rank_in(const fs::path& folder, int rank) {
  const std::string mark = str('\0', "OMPI_COMM_WORLD_RANK=", rank, '\0');
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::error_code error;
    if (fs::read_symlink(entry.path() / "cwd", error) != fs::canonical(folder) || error) continue;
    std::ifstream in(entry.path() / "environ", std::ios::binary);
    const std::string environment = '\0' + std::string(std::istreambuf_iterator<char>(in), {});
    if (environment.find(mark) != environment.npos) return std::stoi(entry.path().filename().string());
  }
  return {};
}

}  // namespace

TEST_CASE("a job that loses ranks starts again by itself, with the bits of one that lost none") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("restarts");
  const std::string options =
      " --train.steps=250 --checkpoint.save_every=20 --train.eval_every=1000 --schedule.kind=constant "
      "--run.dir=runs/";
  const test::Finished whole = workshop.train(2, options + "whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);

  auto disturbed = std::async(std::launch::async, [&] {
    return test::run_command(str("cd restarts; @train config.toml --ranks 2 --restarts 5", options, "lost"));
  });
  for (const int step : {20, 100}) {
    const std::string checkpoint = workshop.file(str("runs/lost/step-", step));
    REQUIRE(test::eventually([&] { return fs::exists(checkpoint); }));
    std::optional<pid_t> victim;
    REQUIRE(test::eventually([&] { return (victim = rank_in("restarts", 1)).has_value(); }));
    kill(*victim, SIGKILL);
    REQUIRE(test::eventually([&] { return test::is_gone(*victim); }));
  }
  const test::Finished run = disturbed.get();
  CAPTURE(run.output);
  CHECK(run.exit_code == 0);
  CHECK(run.output.find("; restart 1 of 5, on 2 ranks\n") != std::string::npos);
  CHECK(run.output.find("; restart 2 of 5, on 2 ranks\n") != std::string::npos);
  CHECK(run.output.find("resumed   runs/lost/step-") != std::string::npos);
  CHECK(hash_of(run) == hash_of(whole));
}

TEST_CASE(
    "--restarts begins a run again that has no checkpoint yet, and replaces what --overwrite replaced") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("restarts_early");
  REQUIRE(workshop.train(1, "--train.steps=4 --checkpoint.save_every=4").exit_code == 0);
  auto disturbed = std::async(std::launch::async, [&] {
    return test::run_command(
        "cd restarts_early; @train config.toml --overwrite --ranks 2 --restarts 1 --train.steps=300 "
        "--checkpoint.save_every=300 --train.eval_every=1000");
  });
  const std::string metrics = workshop.file("runs/default/metrics.jsonl");
  REQUIRE(test::eventually([&] {
    std::ifstream in(metrics);
    return std::count(std::istreambuf_iterator<char>(in), {}, '\n') > 10;
  }));
  const std::optional<pid_t> victim = rank_in("restarts_early", 0);
  REQUIRE(victim);
  kill(*victim, SIGKILL);
  const test::Finished run = disturbed.get();
  CAPTURE(run.output);
  CHECK(run.exit_code == 0);
  CHECK(run.output.find("; restart 1 of 1, on 2 ranks\n") != std::string::npos);
  CHECK(run.output.find("resumed") == std::string::npos);
  CHECK(fs::exists(workshop.file("runs/default/step-300")));
}

TEST_CASE("options that start ranks are refused where they have no effect") {
  const test::Workshop workshop("restarts_refused");
  for (const auto& [options, message] : std::vector<std::pair<const char*, const char*>>{
           {"--restarts 3", "--restarts needs --ranks"},
           {"--hosts h1:2", "--hosts"},
           {"--ranks 2 --launch 'mpirun -np 2'", "--launch and --ranks both start ranks"},
           {"--ranks 2 --hosts h1:1", "--hosts has places for 1 rank, but --ranks is 2"},
           {"--ranks 0", "--ranks"}}) {
    CAPTURE(options);
    const test::Finished run = workshop.train(1, options);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find(message) != std::string::npos);
    CHECK(!fs::exists(workshop.file("runs")));
  }
}

TEST_CASE("a run of an hour says how often saving would cost least") {
  CHECK(describe_pauses(0, 0, 7200).empty());
  CHECK(describe_pauses(3, 6, 3599).empty());
  // sqrt(2 * 2 s * 86,400 s) = 588 s.
  CHECK(describe_pauses(3, 6, 7200) ==
        "saving    paused training for 2.00 s each of 3 times; if ranks are lost once a day, "
        "checkpoint.save_every = \"10min\" costs least\n");
  CHECK(describe_pauses(2, 0, 7200).find("\"1min\"") != std::string::npos);
}
