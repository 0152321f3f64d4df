#include "train/save/folder_lock.h"

#include <filesystem>
#include <optional>
#include <thread>

#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// The number of descriptors that this process has for the folder.
int times_open(const std::string& folder) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code closed_meanwhile;
    count += fs::read_symlink(entry.path(), closed_meanwhile).filename() == folder;
  }
  return count;
}

}  // namespace

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

TEST_CASE("waiting for a folder that is replaced does not lock the new folder") {
  fs::remove_all("replaced_lock");
  fs::create_directory("replaced_lock");
  std::optional<FolderLock> holder("replaced_lock");
  REQUIRE(holder->take());
  FolderLock waiter("replaced_lock");
  bool taken = true;
  std::thread waiting([&] { taken = waiter.take(600); });
  while (times_open("replaced_lock") < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  fs::remove("replaced_lock");
  fs::create_directory("replaced_lock");
  holder.reset();
  waiting.join();
  CHECK_FALSE(taken);
  CHECK(waiter.take());
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
