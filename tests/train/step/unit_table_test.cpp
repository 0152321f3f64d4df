// The table of units: its bytes equal those requested from communicators. Also the estimate of the compute
// that hides them. A planning engine on counting communicators runs and allocates nothing.

#include "train/step/unit_table.h"

#include <cmath>

#include "tests/comm/planned_rank.h"
#include "tests/test.h"
#include "train/measure/bandwidth.h"
#include "train/plan/plan_text.h"
#include "train/report/first_step.h"

using namespace flatshard;
using test::MirrorGroup;
using test::PlannedRank;

namespace {

constexpr int kBlocks = 5, kMicroSteps = 3;

Config small_config(const std::string& family, int ranks) {
  return test::planned_config(family, ranks, kBlocks, kMicroSteps);
}

// When n ranks gather a tensor, each receives the shards of the others.
int64_t received(const CollectiveLog& log, const Communicator& comm) {
  const std::string name = comm.name();
  return sum_of(log, [&](const Collective& c) { return c.communicator == name; }).bytes / comm.size() *
         (comm.size() - 1);
}

// In one level, of which only the sum over both tiers is known, or in two.
void check_tiers(const Bytes& stated, const CollectiveLog& log, const std::vector<MirrorGroup*>& groups) {
  int64_t inside = 0, between = 0;
  bool two = false;
  for (const MirrorGroup* group : groups) {
    inside += received(log, group->inside);
    between += received(log, group->between);
    two = two || group->between.size() > 1;
  }
  CHECK(stated.all() == inside + between);
  if (two) CHECK(stated.between == between);
}

UnitTable table_of(const Config& config, int ranks) { return PlannedRank(config, ranks).units(); }

void check_bytes(const Config& config, int ranks) {
  PlannedRank planned(config, ranks);
  const CollectiveLog log = planned.second_step();
  const UnitTable table = planned.units();
  check_tiers(table.all.traffic.gathered, log, {&planned.gather});
  check_tiers(table.all.traffic.reduced, log, {&planned.reduce, &planned.replicas});
  check_tiers(table.norm, log, {&planned.compute});
}

}  // namespace

TEST_CASE("the table's bytes are those that communicators move, for every strategy") {
  for (const int ranks : {1, 2, 4, 8})
    for (const std::string strategy :
         {"no_shard", "zero1", "shard_grad_op", "full_shard", "hybrid 1", "hybrid 2", "hybrid 4"})
      for (const char* family : {"llama", "gpt2"})
        for (const WrapPolicy wrap :
             {WrapPolicy::block, WrapPolicy::attention_mlp, WrapPolicy::size, WrapPolicy::none})
          for (const bool keep_root : {true, false}) {
            Config config = small_config(family, ranks);
            config.parallel.strategy = *named<Strategy>(strategy.substr(0, strategy.find(' ')));
            if (config.parallel.strategy == Strategy::hybrid)
              config.parallel.group_size = strategy.back() - '0';
            if (config.parallel.group_size > ranks) continue;
            config.parallel.wrap = wrap;
            if (config.parallel.wrap == WrapPolicy::size) config.parallel.wrap_size = 30000;
            config.parallel.keep_root_gathered = keep_root;
            CAPTURE(ranks);
            CAPTURE(strategy);
            CAPTURE(family);
            CAPTURE(wrap);
            CAPTURE(keep_root);
            check_bytes(config, ranks);
          }
}

TEST_CASE("the table's bytes are exact for every reduction, dtype and prefetch, frozen or unsharded") {
  for (const int ranks : {2, 4})
    for (const Strategy strategy : {Strategy::zero1, Strategy::full_shard}) {
      CAPTURE(ranks);
      CAPTURE(strategy);
      const auto changed = [&](auto&& change) {
        Config config = small_config("llama", ranks);
        config.parallel.strategy = strategy;
        change(config);
        check_bytes(config, ranks);
      };
      for (const Reduction reduction : {Reduction::exact, Reduction::sequential, Reduction::native})
        changed([&](Config& c) { c.parallel.reduction = reduction; });
      changed([](Config& c) { c.parallel.accumulation = Accumulation::no_sync; });
      changed([](Config& c) { c.precision.reduce = Precision::bf16; });
      changed([](Config& c) { c.precision.compute = Precision::fp32; });
      changed([](Config& c) { c.trainable = {"*layers.3.*", "*layers.4.*proj*"}; });
      changed([](Config& c) { c.parallel.replicate = {"*norm*", "lm_head.weight"}; });
      for (const BackwardPrefetch ahead :
           {BackwardPrefetch::pre, BackwardPrefetch::post, BackwardPrefetch::none})
        changed([&](Config& c) {
          c.parallel.backward_prefetch = ahead;
          c.parallel.forward_prefetch = false;
          c.parallel.keep_root_gathered = false;
          c.parallel.depth = 3;
        });
    }
}

TEST_CASE("the table's bytes inside and between hosts are those that communicators move") {
  for (const int of_host : {2, 4})
    for (const int hosts : {2, 3, 4})
      for (const std::string strategy : {"no_shard", "zero1", "shard_grad_op", "full_shard", "hybrid 2"})
        for (const Precision wire : {Precision::fp32, Precision::bf16})
          for (const LevelChoice levels : {LevelChoice::automatic, LevelChoice::one}) {
            Config config = small_config("llama", of_host * hosts);
            config.parallel.strategy = *named<Strategy>(strategy.substr(0, strategy.find(' ')));
            if (config.parallel.strategy == Strategy::hybrid) config.parallel.group_size = 2;
            config.parallel.host_ranks = of_host;
            config.parallel.levels = levels;
            config.precision.reduce = wire;
            CAPTURE(of_host);
            CAPTURE(hosts);
            CAPTURE(strategy);
            CAPTURE(wire);
            CAPTURE(levels);
            check_bytes(config, of_host * hosts);
          }
}

TEST_CASE("two levels send an eighth of the gradients between hosts of 8 ranks") {
  Config config = small_config("llama", 16);
  config.parallel.host_ranks = 8;
  const Traffic two = table_of(config, 16).all.traffic;
  config.parallel.levels = LevelChoice::one;
  const Traffic one = table_of(config, 16).all.traffic;
  CHECK(one.reduced.between == 8 * two.reduced.between);
  CHECK(one.reduced.between > 0);
  CHECK(one.gathered.all() == two.gathered.all());
}

TEST_CASE("full_shard receives the bytes of the textbook formula") {
  // (n - 1) / n of two gathers in bf16 and one reduction in f32 for a block, in each micro-step.
  const UnitTable table = table_of(small_config("llama", 4), 4);
  REQUIRE(table.rows.size() == 3);
  const UnitRow& blocks = table.rows[1];
  CHECK(blocks.name == "model.layers.0-4");
  CHECK(blocks.units == kBlocks);
  const int64_t elements = 4 * blocks.shard;
  CHECK(blocks.traffic.gathered.all() == kMicroSteps * 2 * elements * 2 * 3 / 4);
  CHECK(blocks.traffic.reduced.all() == kMicroSteps * elements * 4 * 3 / 4);
}

TEST_CASE("equal units share a line, and the lines add up to the model") {
  const auto names = [](const Config& config) {
    std::string text;
    int64_t parameters = 0, shard = 0;
    const UnitTable table = table_of(config, 2);
    for (const UnitRow& row : table.rows) {
      text += str(row.name, " x", row.units, "; ");
      parameters += row.parameters, shard += row.shard;
    }
    CHECK(parameters == table.all.parameters);
    CHECK(shard == table.all.shard);
    CHECK(describe_units(table, 1).find(table.rows[0].name) != std::string::npos);
    return text;
  };
  Config config = small_config("llama", 2);
  CHECK(names(config) == "root, first x1; model.layers.0-4 x5; root, last x1; ");
  config.trainable = {"*layers.2.*", "lm_head.weight"};
  // Nothing below block 2 is gathered for a backward pass.
  CHECK(names(config) ==
        "root, first x1; model.layers.0-1 x2; model.layers.2 x1; model.layers.3-4 x2; root, last x1; ");
  config = small_config("llama", 2);
  config.parallel.wrap = WrapPolicy::attention_mlp;
  CHECK(names(config) ==
        "root, first x1; root, blocks x1; model.layers.0-4.self_attn x5; "
        "model.layers.0-4.mlp x5; root, last x1; ");
}

TEST_CASE("enough tokens hide the exchange, and one rank has none") {
  // The example of Llama-3-8B: 8 bytes for a parameter, 4 ranks, 500 TFLOP/s, 360 GB/s, 6 operations.
  constexpr double kParameters = 8e9;
  CHECK(tokens_to_hide(8 * 0.75 * kParameters, 360e9, 500e12, 6 * kParameters) ==
        doctest::Approx(1389).epsilon(1e-3));
  Config config = small_config("llama", 2);
  config.parallel.bandwidth_gbps = 0.5;
  const UnitTable table = table_of(config, 2);
  const FlopsPerToken flops{.full = 3e6, .causal = 2e6};
  const std::string text = describe_exchange(set_up(config, 2), table, flops, 4e9, {.bytes_per_second = 5e8});
  const double least = static_cast<double>(table.bytes().all() / kMicroSteps) / 5e8 * 2e9 / 2e6;
  CHECK(text.find(str("from ", static_cast<int64_t>(std::ceil(least)), " tokens per micro-batch")) !=
        std::string::npos);
  CHECK(text.find("at 0.5 GB/s (configured)") != std::string::npos);
  CHECK(text.find("this run has 8\n") != std::string::npos);
  CHECK(describe_exchange(set_up(small_config("llama", 1), 1), table_of(small_config("llama", 1), 1), flops,
                          4e9, {})
            .empty());
}

TEST_CASE("a long row is abbreviated to its ends") {
  const std::vector<int32_t> row{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  CHECK(ends_of(row) == "[1, 2, 3, 4, ..., 7, 8, 9, 10]");
  CHECK(ends_of(std::span(row).first(9)) == "[1, 2, 3, 4, 5, 6, 7, 8, 9]");
  CHECK(ends_of(std::span(row).first(1)) == "[1]");
  CHECK(ends_of({}) == "[]");
}

TEST_CASE("a wrap that leaves more than half of the model in root units is warned of") {
  const auto warning = [](WrapPolicy policy, std::vector<std::string> patterns) {
    Config config = small_config("llama", 2);
    config.parallel.wrap = policy;
    config.parallel.wrap_patterns = std::move(patterns);
    return table_of(config, 2).warning;
  };
  CHECK(warning(WrapPolicy::pattern, {"*.k_proj"}).find("% of the parameters in root units") !=
        std::string::npos);
  CHECK(warning(WrapPolicy::pattern, {"*layers.*"}).empty());
  CHECK(warning(WrapPolicy::none, {}).empty());
}
