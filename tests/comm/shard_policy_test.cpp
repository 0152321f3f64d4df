#include "comm/shard_policy.h"

#include <set>

#include "comm/sharded_unit.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("each strategy from no_shard to full_shard shards more than the one before") {
  const auto sharded = [](const char* name) {
    const ShardPolicy& p = shard_policy(name);
    CHECK(p.name == name);
    return int{p.params} + int{p.grads} + int{p.optimizer};
  };
  CHECK(sharded("no_shard") == 0);
  CHECK(sharded("zero1") == 1);
  CHECK(shard_policy("zero1").optimizer);
  CHECK(sharded("shard_grad_op") == 2);
  CHECK(!shard_policy("shard_grad_op").params);
  CHECK(sharded("full_shard") == 3);
  CHECK(sharded("hybrid") == 3);
  CHECK(test::error_of([] { shard_policy("zero4"); }) ==
        "parallel.strategy is \"zero4\", must be one of no_shard, zero1, shard_grad_op, full_shard, hybrid");
}

TEST_CASE("every rank has one index in one group, and groups consist of consecutive ranks") {
  for (const ShardPolicy& policy : shard_policies())
    for (const int ranks : {1, 2, 3, 4, 6, 8, 12}) {
      for (int size = 1; size <= ranks; ++size) {
        if (ranks % size != 0) continue;
        CAPTURE(policy.name);
        CAPTURE(ranks);
        const RankGroups groups = groups_of(policy, ranks, policy.name == "hybrid" ? size : 0);
        CHECK(groups.size == (policy.name == "hybrid" ? size : policy.name == "no_shard" ? 1 : ranks));
        CHECK(groups.count() * groups.size == ranks);
        std::set<std::pair<int, int>> seen;
        for (int rank = 0; rank < ranks; ++rank) {
          CHECK(groups.group_of(rank) < groups.count());
          CHECK(groups.index_in_group(rank) < groups.size);
          CHECK(seen.insert({groups.group_of(rank), groups.index_in_group(rank)}).second);
          if (rank > 0 && groups.index_in_group(rank) > 0)
            CHECK(groups.group_of(rank) == groups.group_of(rank - 1));
        }
      }
    }
}

TEST_CASE("an invalid group size is an error that states the numbers") {
  const auto error = [](const char* policy, int ranks, int size) {
    return test::error_of([&] { groups_of(shard_policy(policy), ranks, size); });
  };
  CHECK(error("hybrid", 8, 3) ==
        "parallel.group_size = 3 must be positive and divide the 8 ranks of the run");
  CHECK(error("hybrid", 8, 0) ==
        "parallel.group_size = 0 must be positive and divide the 8 ranks of the run");
  for (const char* policy : {"full_shard", "no_shard"})
    CHECK(error(policy, 8, 2) ==
          "parallel.group_size = 2 has an effect only with parallel.strategy = \"hybrid\"; remove it");
}
