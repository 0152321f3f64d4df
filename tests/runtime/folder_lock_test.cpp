#include "runtime/folder_lock.h"

#include <filesystem>
#include <optional>
#include <thread>

#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr const char* kUse = "another test uses it: wait";

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
  std::optional<FolderLock> one(std::in_place, "locked", kUse);
  one->take();  // nothing yet
  std::filesystem::create_directory("locked");
  one->take();
  one->take();
  FolderLock other("locked", kUse);
  CHECK(test::error_of([&] { other.take(0); }) == "locked: another test uses it: wait");
  one.reset();
  other.take(0);
}

TEST_CASE("waiting for a folder that is replaced does not lock the new folder") {
  fs::remove_all("replaced_lock");
  fs::create_directory("replaced_lock");
  std::optional<FolderLock> holder(std::in_place, "replaced_lock", kUse);
  REQUIRE(holder->take());
  FolderLock waiter("replaced_lock", kUse);
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
