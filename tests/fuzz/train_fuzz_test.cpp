#include <filesystem>

#include "tests/fuzz/try_command.h"
#include "tests/fuzz/try_config.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a random config loads and round-trips, or is refused on one line") {
  test::Tally tally;
  for (int64_t number = 0; number < 500; ++number) {
    CAPTURE(number);
    CHECK_NOTHROW(test::try_config(test::mutated_config(7, number), "odd.toml", tally));
  }
  std::filesystem::remove("odd.toml");
  CHECK(tally.loaded > tally.inputs / 10);
  CHECK(tally.resolved > 0);
}

TEST_CASE("a random config is a function of seed and index") {
  const auto same = [](const test::ConfigInput& a, const test::ConfigInput& b) {
    return a.toml == b.toml && a.overrides == b.overrides;
  };
  CHECK(same(test::mutated_config(1, 5), test::mutated_config(1, 5)));
  CHECK_FALSE(same(test::mutated_config(1, 5), test::mutated_config(2, 5)));
}

TEST_CASE("a random command line prints help, trains, or is refused on one line") {
  const test::OddWorkshop workshop("odd_commands/workshop");
  test::CommandTally tally;
  for (int64_t number = 0; number < 600; ++number) {
    CAPTURE(number);
    CHECK_NOTHROW(workshop.try_command(test::odd_command(9, number, workshop.toml()), tally));
  }
  CHECK(tally.trained > 5);
  CHECK(tally.answered > 5);
  CHECK(tally.stopped > 0);
}
