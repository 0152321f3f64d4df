#include "tests/train/crashes.h"

#include <filesystem>

#include "runtime/check.h"
#include "tests/checkpoint_content.h"

namespace flatshard::test {
namespace fs = std::filesystem;
namespace {

constexpr const char* kOptions = " --schedule.kind=constant --train.eval_every=1000 --log.every=1000 ";
constexpr const char* kEveryTwo = "--checkpoint.save_every=2 ";

}  // namespace

Crashes::Crashes(const std::string& folder) : folder_(folder), workshop_(folder) {
  run(1, "", str("--run.dir=good --train.steps=2 ", kEveryTwo));
  run(1, "", str("--run.dir=whole --train.steps=6 ", kEveryTwo));
  for (const int step : {2, 4, 6})
    content_[step] = checkpoint_content(workshop_.file(str("whole/step-", step)));
  check(checkpoint_content(workshop_.file("good/step-2")) == content_[2], "two runs differ at step 2");
}

Finished Crashes::run(int ranks, std::string environment, const std::string& options) const {
  std::string start = launcher(ranks);
  if (ranks == 1) {  // there is no launcher to pass it to
    for (size_t at; (at = environment.find("-x ")) != std::string::npos;) environment.erase(at, 3);
    start = "env ";
  }
  return run_command("cd " + folder_ + " && " + start + environment + "@train config.toml" + kOptions +
                     options);
}

Finished Crashes::crash(const Fault& fault, int call) {
  fs::remove_all(file(""));
  fs::copy(workshop_.file("good"), file(""), fs::copy_options::recursive);
  return run(fault.ranks,
             str("-x LD_PRELOAD=@libdisk_faults.so -x DISK_FAULT_IN=crashed/step-:crashed/latest:/crashed "
                 "-x DISK_FAULT_RANK=",
                 fault.on_rank, " -x DISK_FAULT='", fault.what, ' ', call, "' "),
             str("--run.dir=crashed --train.steps=6 --checkpoint.keep=1 --resume latest ", kEveryTwo,
                 fault.options));
}

int Crashes::calls(const Fault& fault) {
  Fault none = fault;
  none.what = "count";
  const Finished whole = crash(none, 0);
  check(whole.exit_code == 0 && step_left() == 6, "a run without faults fails: ", whole.output);
  return std::stoi(after(whole.output, "disk calls "));
}

int Crashes::step_left() const {
  const std::string latest = read_file(file("latest"));
  for (const auto& [step, content] : content_) {
    if (latest != str("step-", step, '\n')) continue;
    check(checkpoint_content(file(str("step-", step))) == content, "step-", step, " is a mixture");
    return step;
  }
  fail("latest says " + latest);
}

void Crashes::check_resumes() {
  const Finished on = run(1, "", str("--run.dir=crashed --train.steps=6 --resume latest ", kEveryTwo));
  check(on.exit_code == 0, "the next start fails: ", on.output);
  check(checkpoint_content(file("step-6")) == content_.at(6), "the next start ends otherwise");
  for (const auto& entry : fs::directory_iterator(file("")))
    check(entry.path().extension() != ".tmp", entry.path().string(), " is left");
}

bool Crashes::has(const std::string& name) const { return fs::exists(file(name)); }

std::map<int, int> Crashes::sweep(const Fault& fault, int stride) {
  constexpr int kResumed = 4;  // every fourth run
  std::map<int, int> left;
  const int last = calls(fault);
  for (int call = 1, runs = 0; call <= last; call += stride, ++runs) {
    const Finished run = crash(fault, call);
    try {
      ++left[step_left()];
      const bool gave_up = run.output.find("was not written: ") != std::string::npos;
      const bool ends_without_model = run.output.find("crashed/model: cannot write") != std::string::npos;
      const bool stops = fault.options.find("on_error=continue") == std::string::npos;
      check(fault.what == "kill" ? run.exit_code != 0
                                 : !gave_up || (stops || ends_without_model) == (run.exit_code != 0),
            "its exit code is ", run.exit_code);
      if (runs % kResumed == 0) check_resumes();
    } catch (const std::exception& error) {
      fail(str(fault.what, ' ', call, " of ", last, " on rank ", fault.on_rank, " of ", fault.ranks, ": ",
               error.what(), "\n", run.output));
    }
  }
  return left;
}

}  // namespace flatshard::test
