#include "comm/optimizer_kinds.h"

#include <algorithm>
#include <set>

#include "comm/slots.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("every name of an optimizer leads to its row, paged or not") {
  const std::vector<std::string> names = optimizer_names();
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == 2 * optimizer_kinds().size());
  for (const std::string& name : names) CHECK(name_of(optimizer_named(name).value()) == name);
  CHECK(name_of(OptimizerChoice{}) == "adamw");
  CHECK(name_of({.row = optimizer_named("adamw")->row, .paged = true}) == "paged_adamw32bit");
  CHECK(name_of({.row = optimizer_named("adamw8bit")->row, .paged = true}) == "paged_adamw8bit");
  CHECK(!optimizer_named("adam"));
  CHECK(!optimizer_named("paged_adamw"));
}

TEST_CASE("a state with blocks has a plain form with the same checkpoint files, and aligned shards") {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    CAPTURE(kind.name);
    CHECK(!kind.states().empty());
    CHECK(kind.states().front().block == 1);
    CHECK(FlatLayout::kShardMultiple % kind.largest_block() == 0);
    if (kind.largest_block() == 1) continue;
    REQUIRE(kind.without_blocks != nullptr);
    CHECK(kind.without_blocks->largest_block() == 1);
    const auto same = [](std::string_view a, std::string_view b) { return a == b; };
    CHECK(std::ranges::equal(kind.sets(), kind.without_blocks->sets(), same));
  }
}
