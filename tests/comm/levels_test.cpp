// Which groups of ranks communicate in two levels, and why others do not.

#include "comm/levels.h"

#include <set>

#include "comm/rank_group.h"
#include "tests/test.h"
#include "train/plan/plan_text.h"
#include "train/setup/run_setup.h"
#include "train/step/training_runtime.h"

using namespace flatshard;

namespace {

Levels two_levels(const std::vector<int>& hosts, int member = 0) { return levels_of(hosts, member, true); }

Config config_for(Strategy strategy, int64_t group_size, int64_t host_ranks) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 2, .hidden = 16, .heads = 2, .ffn = 32, .vocab = 64};
  c.data.seq_len = 8;
  c.train.steps = 1;
  c.train.total_batch_size = 24;
  c.train.lane_size = 1;
  c.optimizer.lr = 1e-3;
  c.parallel.strategy = strategy;
  c.parallel.group_size = group_size;
  c.parallel.host_ranks = host_ranks;
  return c;
}

std::string header(const Config& config, int ranks) {
  const RunSetup setup = set_up(config, ranks);
  return describe_setup(setup, plan_run(setup, 0));
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("ranks on several hosts have two levels if each host has the same power of two of them") {
  const Levels levels = two_levels({0, 0, 0, 0, 1, 1, 1, 1, 5, 5, 5, 5});
  CHECK(levels.ranks == 12);
  CHECK(levels.inside == 4);
  CHECK(levels.between() == 3);
  CHECK(two_levels({0, 0, 1, 1}, 3).two());
  CHECK(!levels_of(std::vector<int>{0, 0, 1, 1}, 0, false).two());
  CHECK(levels_of(std::vector<int>{0, 0, 0, 1}, 1, false).on_host == 3);
}

TEST_CASE("other ranks have one level, with a reason if two would send less") {
  CHECK(!gain_from_two_levels(std::vector<int>{0, 0, 0}));
  CHECK(!gain_from_two_levels(std::vector<int>{0, 1, 2}));
  CHECK(!two_levels({0, 0, 0}).two());
  CHECK(!two_levels({0, 1, 2}).two());
  const auto reason = [](const std::vector<int>& hosts) {
    CHECK(gain_from_two_levels(hosts));
    CHECK(!two_levels(hosts).two());
    return why_one_level(hosts);
  };
  CHECK(reason({0, 0, 0, 1, 1, 1}) == "its hosts have 3 ranks each, which is no power of two");
  CHECK(reason({0, 0, 1, 0}) == "one of its hosts has 1 of its ranks and another has 3");
  CHECK(reason({0, 1, 0, 1}) == "its ranks are not numbered host by host");
}

TEST_CASE("a run names its levels, and refuses two where they are impossible") {
  CHECK(!contains(header(config_for(Strategy::full_shard, 0, 0), 4), "levels"));
  CHECK(contains(header(config_for(Strategy::full_shard, 0, 2), 4),
                 "levels    two: 2 ranks of a host exchange, then the 2 hosts\n"));
  CHECK(contains(header(config_for(Strategy::no_shard, 0, 2), 8),
                 "levels    two: 2 ranks of a host exchange, then the 4 hosts\n"));
  CHECK(contains(
      header(config_for(Strategy::full_shard, 0, 3), 6),
      "levels    one: every rank exchanges with every other of its group; of the ranks 0-5 its hosts "
      "have 3 ranks each, which is no power of two\n"));
  CHECK(contains(header(config_for(Strategy::hybrid, 2, 2), 4), "levels    one: "));
  Config c = config_for(Strategy::full_shard, 0, 3);
  c.parallel.levels = LevelChoice::two;
  CHECK(contains(test::error_of([&] { set_up(c, 6); }),
                 "parallel.levels = \"two\", but of the ranks 0-5 its hosts"));
  c.parallel.host_ranks = 0;
  CHECK(contains(test::error_of([&] { set_up(c, 6); }), "but every group of ranks is on one host"));
  c = config_for(Strategy::full_shard, 0, 2);
  c.parallel.levels = LevelChoice::two;
  c.parallel.reduction = Reduction::native;
  CHECK(contains(test::error_of([&] { set_up(c, 4); }), "parallel.reduction = \"native\" leaves them"));
}

TEST_CASE("every shard of a group belongs to one rank, in levels of any size") {
  for (const int of_host : {2, 4})
    for (const int hosts : {1, 2, 3}) {
      const RunSetup setup = set_up(config_for(Strategy::full_shard, 0, of_host), of_host * hosts);
      std::set<int> shards;
      for (int member = 0; member < setup.ranks(); ++member) {
        const Levels levels = setup.levels_of(member).group;
        CHECK(levels.inside == of_host);
        CHECK(levels.between() == hosts);
        const auto inside =
            make_planning_communicator("inside", member % levels.inside, levels.inside, Transport::host);
        const auto between =
            make_planning_communicator("between", member / levels.inside, levels.between(), Transport::host);
        const RankGroup group(*inside, *between);
        CHECK(group.size() == setup.ranks());
        CHECK(group.rank() < group.size());
        CHECK(shards.insert(group.rank()).second);
      }
    }
}
