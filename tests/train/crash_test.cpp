// What is left of a checkpoint when the process dies or the disk fails while it is being written: the program
// train over tests/disk_faults.cpp.

#include <filesystem>

#include "build_config.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr const char* kOptions = " --schedule.kind=constant --train.eval_every=1000 --log.every=1000 ";

// A folder "good" with a checkpoint of step 2; from it runs go on to step 4 over a disk with faults, and save
// again there.
class Crashes {
 public:
  explicit Crashes(const std::string& folder) : folder_(folder), workshop_(folder) {
    run(1, "", "--run.dir=good --checkpoint.save_every=2 --train.steps=2");
    run(1, "", "--run.dir=whole --checkpoint.save_every=2 --train.steps=4");
    before_ = test::checkpoint_content(workshop_.file("whole/step-2"));
    after_ = test::checkpoint_content(workshop_.file("whole/step-4"));
    CHECK(test::checkpoint_content(workshop_.file("good/step-2")) == before_);
  }

  // A copy of "good", and in it a run with this fault.
  test::Finished crash(int ranks, const std::string& fault, int rank, const std::string& options = "") {
    fs::remove_all(file(""));
    fs::copy(workshop_.file("good"), file(""), fs::copy_options::recursive);
    return run(ranks,
               str("-x LD_PRELOAD=@libdisk_faults.so -x DISK_FAULT_IN=crashed/step-:crashed/latest:/crashed "
                   "-x DISK_FAULT_RANK=",
                   rank, " -x DISK_FAULT='", fault, "' "),
               "--run.dir=crashed --checkpoint.save_every=4 --train.steps=4 --resume latest " + options);
  }
  // `latest` names a checkpoint that is whole: that of step 2 or of step 4.
  int step_left() const {
    const std::string latest = test::read_file(file("latest"));
    const int step = latest == "step-2\n" ? 2 : latest == "step-4\n" ? 4 : 0;
    CHECK_MESSAGE(step != 0, latest);
    CHECK(test::checkpoint_content(file(str("step-", step))) == (step == 2 ? before_ : after_));
    return step;
  }
  // And the next start goes on from it, to where a run without faults ends.
  void check_goes_on() {
    const test::Finished on =
        run(1, "", "--run.dir=crashed --checkpoint.save_every=2 --train.steps=4 --resume latest");
    CHECK_MESSAGE(on.exit_code == 0, on.output);
    CHECK(test::checkpoint_content(file("step-4")) == after_);
    for (const auto& entry : fs::directory_iterator(file(""))) CHECK(entry.path().extension() != ".tmp");
  }
  bool has(const std::string& name) const { return fs::exists(file(name)); }

 private:
  std::string file(const std::string& name) const { return workshop_.file("crashed/" + name); }
  test::Finished run(int ranks, std::string environment, const std::string& options) {
    std::string start = test::launcher(ranks);
    if (ranks == 1) {  // no launcher to give it to
      for (size_t at; (at = environment.find("-x ")) != std::string::npos;) environment.erase(at, 3);
      start = "env ";
    }
    return test::run_command("cd " + folder_ + " && " + start + environment + "@train config.toml" +
                             kOptions + options);
  }

  std::string folder_;
  test::Workshop workshop_;
  std::string before_, after_;
};

std::string no_faults_because() {
  return *kSanitizer ? "a sanitizer must be the first library of a process" : "";
}

}  // namespace

TEST_CASE("a run that is killed at any call of a save leaves the old checkpoint or the new one, whole") {
  if (const std::string reason = no_faults_because(); !reason.empty()) return test::skip(reason);
  Crashes crashes("crash_kill");
  const test::Finished whole = crashes.crash(1, "count", 0);
  REQUIRE_MESSAGE(whole.exit_code == 0, whole.output);
  CHECK(crashes.step_left() == 4);
  const int calls = std::stoi(test::after(whole.output, "disk calls "));
  constexpr int kCommit = 30, kStride = 9;  // the calls at the end are the ones that matter most
  REQUIRE(calls > 2 * kCommit);
  int old_left = 0, new_left = 0;
  for (int call = 1; call <= calls; call += call < calls - kCommit ? kStride : 1) {
    CAPTURE(call);
    const test::Finished run = crashes.crash(1, str("kill ", call), 0);
    CHECK(run.exit_code != 0);
    (crashes.step_left() == 2 ? old_left : new_left) += 1;
    if (call % 4 == 0) crashes.check_goes_on();
  }
  CHECK(old_left > 0);
  CHECK(new_left > 0);
}

TEST_CASE("a call that fails on any rank ends the save on all of them, and the last checkpoint stays") {
  if (const std::string reason = no_faults_because(); !reason.empty()) return test::skip(reason);
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  Crashes crashes("crash_fail");
  for (const int rank : {0, 1}) {
    CAPTURE(rank);
    // Of rank 0 the first calls move `latest` to where the run goes on from.
    const test::Finished run = crashes.crash(2, "full 12", rank);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find(str("the checkpoint of step 4 was not written: ",
                              rank == 0 ? "" : "on rank 1: ")) != std::string::npos);
    CHECK(run.output.find(": No space left on device") != std::string::npos);
    CHECK(crashes.step_left() == 2);
    CHECK(!crashes.has("step-4.tmp"));
    CHECK(!crashes.has("step-4"));
    crashes.check_goes_on();
  }
  const test::Finished on = crashes.crash(2, "fail 12", 1, "--checkpoint.on_error=continue");
  CAPTURE(on.output);
  CHECK(on.exit_code == 0);
  CHECK(on.output.find("warning: the checkpoint of step 4 was not written: on rank 1: ") !=
        std::string::npos);
  CHECK(crashes.step_left() == 2);
  const test::Finished killed = crashes.crash(2, "kill 9", 1);
  CHECK(killed.exit_code != 0);
  CHECK(crashes.step_left() == 2);
  crashes.check_goes_on();
}
