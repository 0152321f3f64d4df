#include <filesystem>

#include "tests/test.h"
#include "tests/workshop.h"
#include "train/save/checkpoints.h"

using namespace flatshard;
namespace fs = std::filesystem;

TEST_CASE("a checkpoint of more files than may be open stops the run before its first step") {
  const test::Workshop workshop("many_files");
  const test::Finished run =
      test::run_command("cd many_files && ulimit -n 40 && @train config.toml --checkpoint.shard_size=1KB");
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.output.find("train: checkpoint.shard_size = 1000 bytes cuts a checkpoint into ") !=
        std::string::npos);
  CHECK(!fs::exists(workshop.file("runs")));
  // A soft limit is no limit.
  const test::Finished raised = test::run_command(
      "cd many_files && ulimit -Sn 40 && @train config.toml --checkpoint.shard_size=1KB "
      "--checkpoint.save_every=3");
  CHECK_MESSAGE(raised.exit_code == 0, raised.output);
}
