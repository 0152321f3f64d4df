// What earlier versions wrote is read: tests/golden/old_run, which its script `make` made.

#include <filesystem>

#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"
#include "train/report/metrics.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// A copy of the old run's folder.
std::string copied(const std::string& name) {
  fs::remove_all(name);
  fs::copy(std::string(kSourceDir) + "/tests/golden/old_run", name, fs::copy_options::recursive);
  return name;
}

double last_loss(const std::string& folder) {
  return read_metrics(folder + "/run/metrics.jsonl").back().loss;
}

}  // namespace

TEST_CASE("a run that an earlier version began resumes at its step, with its losses") {
  const std::string folder = copied("old_run");
  const double loss = last_loss(folder);
  const test::Finished run = test::run_command("cd " + folder + " && @train config.toml --resume latest");
  CHECK(run.exit_code == 0);
  CHECK(has(run.output, "resumed   run/step-4, after step 4"));
  CHECK(!has(run.output, "changed since"));
  CHECK(!has(run.output, "begins again"));
  CHECK(last_loss(folder) == doctest::Approx(loss).epsilon(1e-3));
}

TEST_CASE("the files that an earlier version wrote are whole") {
  const std::string folder = copied("old_files");
  for (const std::string command :
       {"@ckpt verify run/step-4", "@ckpt inspect run/step-4", "@evaluate loss run/step-4 fox.tok",
        "@ckpt export run/step-4 exported"}) {
    CAPTURE(command);
    const test::Finished done = test::run_command("cd " + folder + " && " + command);
    CAPTURE(done.output);
    CHECK(done.exit_code == 0);
  }
}
