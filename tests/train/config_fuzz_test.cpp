#include <filesystem>

#include "tests/fuzz/try_config.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a config however odd loads, or is refused in one line, and reads back as it prints") {
  test::Tally tally;
  for (int64_t number = 0; number < 500; ++number) {
    CAPTURE(number);
    CHECK_NOTHROW(test::try_config(test::mutated_config(7, number), "odd.toml", tally));
  }
  std::filesystem::remove("odd.toml");
  CHECK(tally.loaded > tally.inputs / 10);
  CHECK(tally.resolved > 0);
}

TEST_CASE("an odd config is a function of seed and number") {
  const auto same = [](const test::ConfigInput& a, const test::ConfigInput& b) {
    return a.toml == b.toml && a.overrides == b.overrides;
  };
  CHECK(same(test::mutated_config(1, 5), test::mutated_config(1, 5)));
  CHECK_FALSE(same(test::mutated_config(1, 5), test::mutated_config(2, 5)));
}
