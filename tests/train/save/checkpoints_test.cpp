#include "train/save/checkpoints.h"

#include <filesystem>
#include <fstream>

#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/save/checkpoint_names.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

void write_text(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a checkpoint with more files than may be open stops the run before its first step") {
  const test::Workshop workshop("many_files");
  const test::Finished run =
      test::run_command("cd many_files && ulimit -n 40 && @train config.toml --checkpoint.shard_size=1KB");
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.output.find("train: checkpoint.shard_size = 1000 bytes splits a checkpoint into ") !=
        std::string::npos);
  CHECK(!fs::exists(workshop.file("runs")));
  // A soft limit is no limit.
  const test::Finished raised = test::run_command(
      "cd many_files && ulimit -Sn 40 && @train config.toml --checkpoint.shard_size=1KB "
      "--checkpoint.save_every=3");
  CHECK_MESSAGE(raised.exit_code == 0, raised.output);
}

TEST_CASE("a checkpoint is removed only if it contains nothing else") {
  fs::remove_all("unfinished");
  const std::string folder = "unfinished/step-5.tmp";
  remove_checkpoint(folder);  // nothing there
  write_text(folder + "/model-00001-of-00002.safetensors", "half");
  write_text(folder + "/exp_avg.safetensors", "half");
  write_text(folder + "/config.json", "{}");
  write_text(folder + "/tokenizer.json", "{}");
  CHECK(is_of_checkpoint(folder));
  write_text(folder + "/notes", "mine");
  CHECK(test::error_of([&] { remove_checkpoint(folder); }) ==
        folder + ": was not written by a run: move it away");
  CHECK(test::read_file(folder + "/notes") == "mine");
  fs::remove(folder + "/notes");
  fs::create_directory_symlink("step-5.tmp", "unfinished/link");
  CHECK(!is_of_checkpoint("unfinished/link"));
  remove_checkpoint(folder);
  CHECK(!fs::exists(folder));
}

TEST_CASE("a run keeps folders whose names only start like those of its checkpoints") {
  const test::Workshop workshop("foreign_steps");
  const auto train = [&](const std::string& options) {
    return workshop.train(1,
                          "--run.dir=run --data.eval= --train.eval_every=0 --train.steps=2 "
                          "--checkpoint.save_every=1 " +
                              options);
  };
  write_text(workshop.file("run/step-notes.tmp/a"), "mine");
  write_text(workshop.file("run/step-2.old.tmp/a"), "mine");
  const test::Finished refused = train("");
  CHECK(refused.output == "train: run/step-2.old.tmp: was not written by a run: move it away\n");
  fs::rename(workshop.file("run/step-2.old.tmp"), workshop.file("elsewhere"));
  const test::Finished run = train("--checkpoint.keep=1");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  CHECK(test::read_file(workshop.file("run/step-notes.tmp/a")) == "mine");
  CHECK(steps_in(workshop.file("run")) == std::vector<int64_t>{2});
}
