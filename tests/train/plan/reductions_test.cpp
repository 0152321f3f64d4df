#include "train/plan/reductions.h"

#include "tests/comm/planned_rank.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a plan in two levels has the costs of the library's sums, which have one level") {
  Config config = test::planned_config("llama", 16, 2, 1);
  const auto table_of = [&] {
    const RunSetup setup = set_up(config, 16);
    CHECK(setup.uses_two_levels() == (config.parallel.host_ranks == 8));
    return describe_reductions(setup, plan_run(setup, 0), 0).table;
  };
  const auto native = [](const std::string& table) { return table.substr(table.find("  native ")); };
  config.parallel.host_ranks = 16;
  const std::string one = native(table_of());
  config.parallel.host_ranks = 8;
  CHECK(native(table_of()) == one);
}
