#include "train/save/folder_lock.h"

#include <filesystem>
#include <optional>

#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

TEST_CASE("a folder lock has one holder until that ends, and a missing folder has none") {
  std::filesystem::remove_all("locked");
  std::optional<FolderLock> one("locked");
  one->take();  // nothing yet
  std::filesystem::create_directory("locked");
  one->take();
  one->take();
  FolderLock other("locked");
  CHECK(test::error_of([&] { other.take(0); }) ==
        "locked: another run is using this folder: wait until it ends, or choose another run.dir");
  one.reset();
  other.take(0);
}

TEST_CASE("a run refuses the folder of an active run") {
  const test::Workshop workshop("two_runs");
  const std::string unfinished = workshop.file("run/step-2.tmp");
  std::filesystem::create_directories(unfinished);
  std::optional<FolderLock> at_work(workshop.file("run"));
  at_work->take();
  const test::Finished refused = workshop.train(1, "--run.dir=run");
  CHECK(refused.exit_code == 1);
  CHECK_MESSAGE(refused.output.find("run: another run is using this folder") != std::string::npos,
                refused.output);
  CHECK(std::filesystem::exists(unfinished));
  at_work.reset();
  const test::Finished run = workshop.train(1, "--run.dir=run");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  CHECK(!std::filesystem::exists(unfinished));
}
