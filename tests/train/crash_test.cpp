// Checkpoints of which the process dies, or the disk fails, during the save.

#include <filesystem>

#include "tests/test.h"
#include "tests/train/crashes.h"

using namespace flatshard;
using test::Crashes;
using test::Fault;

TEST_CASE("a run killed at any system call of a save leaves a complete old or new checkpoint") {
  Crashes crashes("crash_kill");
  constexpr int kStride = 29;  // crash_matrix tries every call
  for (const std::string options : {"", "--checkpoint.async=false"}) {
    std::map<int, int> left = crashes.sweep({.what = "kill", .options = options}, kStride);
    CHECK(left[2] > 0);
    CHECK(left[4] > 0);
  }
}

TEST_CASE("a failed system call on any rank ends the save on all ranks and keeps the last checkpoint") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  Crashes crashes("crash_fail");
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    const test::Finished run = crashes.crash({.what = "full", .ranks = 2, .on_rank = rank}, 12);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find(str("the checkpoint of step 4 was not written: ",
                              rank == 0 ? "" : "on rank 1: ")) != std::string::npos);
    CHECK(run.output.find(": No space left on device") != std::string::npos);
    CHECK(crashes.step_left() == 2);
    CHECK(!crashes.has("step-4.tmp"));
    CHECK(!crashes.has("step-4"));
    crashes.check_resumes();
  }
  const test::Finished killed = crashes.crash({.what = "kill", .ranks = 2, .on_rank = 1}, 9);
  CHECK(killed.exit_code != 0);
  CHECK(crashes.step_left() == 2);
  crashes.check_resumes();
}

TEST_CASE("a limit on the size of files is an error of the save, not the end of the process") {
  const test::Workshop workshop("crash_limit");
  const auto run = [&](const std::string& options) {
    return test::run_command(
        "cd crash_limit && ulimit -f 40 && @train config.toml --checkpoint.save_every=3 " + options);
  };
  const test::Finished stops = run("--run.dir=stops");
  CAPTURE(stops.output);
  CHECK(stops.exit_code == 1);
  CHECK(stops.output.find(
            "train: the checkpoint of step 3 was not written: stops/step-3.tmp/model.safetensors: ") !=
        std::string::npos);
  CHECK(stops.output.find(": File too large\n") != std::string::npos);
  const test::Finished continues = run("--run.dir=continues --checkpoint.on_error=continue");
  CAPTURE(continues.output);
  CHECK(continues.output.find("warning: the checkpoint of step 6 was not written: ") != std::string::npos);
  CHECK(continues.output.find("train: continues/model/model.safetensors.tmp: ") != std::string::npos);
  for (const char* folder : {"crash_limit/stops", "crash_limit/continues"})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      CHECK(!entry.path().filename().string().starts_with("step-"));
}

TEST_CASE("training continues on a failing or full disk if configured to") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  Crashes crashes("crash_continue");
  const Fault failing{.what = "fail", .ranks = 2, .on_rank = 1, .options = "--checkpoint.on_error=continue"};
  const test::Finished once = crashes.crash(failing, 12);
  CAPTURE(once.output);
  CHECK(once.exit_code == 0);
  CHECK(once.output.find("warning: the checkpoint of step 4 was not written: on rank 1: ") !=
        std::string::npos);
  CHECK(crashes.step_left() == 6);  // the next save has no fault
  Fault full = failing;
  full.what = "full";
  const test::Finished on = crashes.crash(full, 12);
  CAPTURE(on.output);
  CHECK(on.exit_code == 0);
  CHECK(on.output.find("warning: the checkpoint of step 6 was not written: on rank 1: ") !=
        std::string::npos);
  CHECK(crashes.step_left() == 2);
  std::map<int, int> left = crashes.sweep(
      {.what = "fail", .ranks = 2, .on_rank = 0, .options = "--checkpoint.on_error=continue"}, 37);
  CHECK(left[6] > 0);
}
