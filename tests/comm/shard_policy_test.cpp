#include "comm/shard_policy.h"

#include <set>

#include "comm/sharded_unit.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("each strategy from no_shard to full_shard shards more than the one before") {
  const auto sharded = [](Strategy strategy) {
    const ShardPolicy& p = shard_policy(strategy);
    CHECK(p.strategy == strategy);
    return int{p.params} + int{p.grads} + int{p.optimizer};
  };
  CHECK(sharded(Strategy::no_shard) == 0);
  CHECK(sharded(Strategy::zero1) == 1);
  CHECK(shard_policy(Strategy::zero1).optimizer);
  CHECK(sharded(Strategy::shard_grad_op) == 2);
  CHECK(!shard_policy(Strategy::shard_grad_op).params);
  CHECK(sharded(Strategy::full_shard) == 3);
  CHECK(sharded(Strategy::hybrid) == 3);
}

TEST_CASE("every rank has one index in one group, and groups consist of consecutive ranks") {
  for (const ShardPolicy& policy : shard_policies())
    for (const int ranks : {1, 2, 3, 4, 6, 8, 12}) {
      for (int size = 1; size <= ranks; ++size) {
        if (ranks % size != 0) continue;
        CAPTURE(policy.strategy);
        CAPTURE(ranks);
        const RankGroups groups = groups_of(policy, ranks, policy.strategy == Strategy::hybrid ? size : 0);
        CHECK(groups.size == (policy.strategy == Strategy::hybrid     ? size
                              : policy.strategy == Strategy::no_shard ? 1
                                                                      : ranks));
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
  const auto error = [](Strategy strategy, int ranks, int size) {
    return test::error_of([&] { groups_of(shard_policy(strategy), ranks, size); });
  };
  CHECK(error(Strategy::hybrid, 8, 3) ==
        "parallel.group_size = 3 must be positive and divide the 8 ranks of the run");
  CHECK(error(Strategy::hybrid, 8, 0) ==
        "parallel.group_size = 0 must be positive and divide the 8 ranks of the run");
  for (const Strategy strategy : {Strategy::full_shard, Strategy::no_shard})
    CHECK(error(strategy, 8, 2) ==
          "parallel.group_size = 2 has an effect only with parallel.strategy = \"hybrid\"; remove it");
}
