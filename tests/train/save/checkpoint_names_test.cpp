#include "train/save/checkpoint_names.h"

#include <fstream>
#include <sys/stat.h>

#include "hub/model_folder.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

TEST_CASE("a pipe, a device or an endless file as `latest` is refused without blocking") {
  fs::create_directories("names/runs/step-1");
  const fs::path latest = "names/runs/latest";
  const auto is_refused = [&](const std::string& reason) {
    CHECK(test::error_of([] { latest_in("names/runs"); }).find(reason) != std::string::npos);
    CHECK_FALSE(test::error_of([] { find_model_folder("", "names"); }).empty());
  };
  REQUIRE(mkfifo(latest.c_str(), 0600) == 0);
  is_refused("latest: not a regular file");
  fs::remove(latest);
  fs::create_symlink("/dev/zero", latest);
  is_refused("latest: not a regular file");
  fs::remove(latest);
  std::ofstream(latest).flush();
  fs::resize_file(latest, uintmax_t{1} << 40);
  is_refused("latest: has 1099511627776 bytes, must have at most ");
}
