#include "planner/search/setting_search.h"

#include "planner/simulate/step_rows.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

Config small_config() {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 4, .hidden = 1024, .heads = 16, .ffn = 2816, .vocab = 4096};
  c.data.seq_len = 512;
  c.data.packing = Packing::wrapped;
  c.train.steps = 100;
  c.train.total_batch_size = 16;
  c.train.batch_size_per_device = 1;
  c.train.recompute = Recompute::full;
  c.optimizer.lr = 1e-3;
  c.precision.compute = Precision::bf16;
  return c;
}

Cluster a100() {
  Cluster cluster = usual_cluster(gpu_model("a100-80gb"));
  cluster.price_per_hour = 2;
  return cluster;
}

// The same with so little memory that `bytes` of it are usable.
Cluster a100_of(int64_t bytes) {
  Cluster cluster = a100();
  const int64_t reserved = cluster.gpu.memory_bytes() - usable_bytes(cluster);
  cluster.gpu.memory_mib = (bytes + reserved) >> 20;
  return cluster;
}

SimulatedStep simulated(const Config& config, int ranks) {
  return simulate_step(set_up(config, ranks, {}, Purpose::plan), a100());
}

int64_t bytes_of(const Config& config, int ranks) {
  return plan_largest(set_up(config, ranks, {}, Purpose::plan)).device_bytes;
}

}  // namespace

TEST_CASE("a search finds settings that are faster than the config, the fastest first") {
  const Config config = small_config();
  const SearchResult result = search_settings(config, 4, a100(), SearchScope::all);
  REQUIRE(result.best.size() == 10);
  CHECK(result.planned == result.simulated + result.refused + result.too_large + result.slower);
  CHECK(result.simulated >= 10);
  for (size_t i = 1; i < result.best.size(); ++i)
    CHECK(result.best[i - 1].step.p50 <= result.best[i].step.p50);
  const FoundSetting& first = result.best.front();
  CHECK(first.step.p50 < 0.9 * simulated(config, 4).p50);
  CHECK(first.arguments.find("--train.recompute=false") != std::string::npos);
  CHECK(first.step.p50 == simulated(first.config, 4).p50);
  CHECK(first.device_bytes == bytes_of(first.config, 4));
}

TEST_CASE("a search finds what all its candidates, simulated one by one, show to be fastest") {
  const Config config = small_config();
  double least = INFINITY;
  for (const Candidate& c : candidates_of(config, 2, a100(), SearchScope::usual)) try {
      least = std::min(least, simulated(c.config, 2).p50);
    } catch (const Error&) {  // the settings exclude each other
    }
  const SearchResult result = search_settings(config, 2, a100(), SearchScope::usual);
  REQUIRE(!result.best.empty());
  CHECK(result.best.front().step.p50 == doctest::Approx(least).epsilon(0.005));
}

TEST_CASE("a step needs at least the memory of its first stage with few micro-batches") {
  int possible = 0;
  for (const Candidate& c : candidates_of(small_config(), 4, a100(), SearchScope::all)) try {
      const RunSetup setup = set_up(c.config, 4, {}, Purpose::plan);
      const int64_t few = std::min<int64_t>(setup.pipeline.stages, setup.batching.micro_steps);
      CAPTURE(c.changes);
      CHECK(plan_run(with_micro_steps(setup, few), 0).memory_bytes <= plan_largest(setup).plan.memory_bytes);
      ++possible;
    } catch (const Error&) {  // the settings exclude each other
    }
  CHECK(possible > 100);
}

TEST_CASE("a search does not depend on the number of threads") {
  const int threads = thread_count();
  const auto rows = [&](int count) {
    set_thread_count(count);
    std::vector<std::pair<std::string, double>> found;
    for (const FoundSetting& s : search_settings(small_config(), 4, a100(), SearchScope::all).best)
      found.emplace_back(s.arguments, s.step.p50);
    return found;
  };
  const auto one = rows(1), two = rows(2);
  set_thread_count(threads);
  CHECK(one.size() == 10);
  CHECK(one == two);
}

TEST_CASE("a search for the same results changes strategy, recomputation and micro-batches in their lanes") {
  const SearchResult result = search_settings(small_config(), 4, a100(), SearchScope::same_results);
  REQUIRE(!result.best.empty());
  for (const FoundSetting& s : result.best) {
    CHECK(s.effect == "");
    CHECK(lane_size_of(s.config, 4) == 1);
    for (const char* other : {"reduction", "stages", "kind", "head_chunk"})
      CHECK_MESSAGE(s.arguments.find(other) == std::string::npos, s.arguments);
  }
}

// Mixtral-8x7B's blocks have 1.4 G parameters of experts.
TEST_CASE("few tokens are sent to their experts, many wait for the experts' weights") {
  Config config = small_config();
  config.run.device = DeviceChoice::cuda;
  config.model = {.family = "mixtral",
                  .layers = 2,
                  .hidden = 4096,
                  .heads = 32,
                  .kv_heads = 8,
                  .ffn = 14336,
                  .vocab = 4096,
                  .experts = 8,
                  .experts_per_token = 2};
  config.train.total_batch_size = 4;
  const auto seconds = [&](int64_t expert_ranks, int64_t sequences) {
    Config c = config;
    c.parallel.expert_ranks = expert_ranks;
    c.train.total_batch_size = 4 * sequences;
    c.train.batch_size_per_device = sequences;
    return simulated(c, 4).p50;
  };
  CHECK(seconds(4, 1) < 0.8 * seconds(1, 1));
  CHECK(seconds(4, 64) > seconds(1, 64));
  const SearchResult result = search_settings(config, 4, a100(), SearchScope::usual);
  REQUIRE(!result.best.empty());
  CHECK_MESSAGE(result.best.front().arguments.find("--parallel.expert_ranks=4") != std::string::npos,
                result.best.front().arguments);
}

TEST_CASE("a change that gains nothing is left out") {
  const SearchResult result = search_settings(small_config(), 4, a100(), SearchScope::all);
  for (const FoundSetting& a : result.best)
    for (const FoundSetting& b : result.best)
      if (a.arguments.starts_with(b.arguments + ' ')) CHECK(a.step.p50 < 0.996 * b.step.p50);
}

TEST_CASE("a search that finds nothing to fit tries smaller moments") {
  Config config = small_config();
  config.train.total_batch_size = 4;
  // Less than any setting takes that keeps the moments as they are.
  int64_t least = INT64_MAX;
  for (const Candidate& c : candidates_of(config, 1, a100(), SearchScope::all))
    least = std::min(least, bytes_of(c.config, 1));
  const SearchResult result = search_settings(config, 1, a100_of(least * 3 / 4), SearchScope::usual);
  REQUIRE(!result.best.empty());
  CHECK(result.too_large > 0);
  for (const FoundSetting& s : result.best) {
    CHECK(s.device_bytes <= least * 3 / 4);
    CHECK(s.effect == "moments of 8 bits");
    CHECK_MESSAGE(s.arguments.find("--optimizer.kind=") != std::string::npos, s.arguments);
  }
  CHECK(search_settings(config, 1, a100_of(least / 4), SearchScope::usual).best.empty());
}

TEST_CASE("the table of a search has ten rows with times, prices and limits") {
  const Config config = small_config();
  const SearchResult result = search_settings(config, 4, a100(), SearchScope::all);
  const std::string text = describe_search(result, config, 4, a100());
  CHECK(test::missing_from(text, {"for 4 ranks of a100-80gb", "tok/s/GPU", "$/10^9 tokens", "limited by",
                                  "\n10 ", "100 steps take", "not measured"}) == "");
  CHECK(text.find("\n11 ") == std::string::npos);
  const double dollars = 4 * 2 / 3600.0 * result.best.front().step.p50 / (16 * 512) * 1e9;
  CHECK(text.find(' ' + fixed(dollars, 2) + '\n') != std::string::npos);
  CHECK(test::missing_from(describe_search({}, config, 4, a100()), {"nothing fits", "--lora.rank=16"}) == "");
}

TEST_CASE("--search asks for machines, and finds settings in every build") {
  const test::Workshop workshop("search");
  const test::Finished alone = workshop.train(1, "--search --ranks 2");
  CHECK_MESSAGE(alone.output.find("--search needs --for") != std::string::npos, alone.output);
  const test::Finished both = workshop.train(1, "--search --plan --for h100-80gb");
  CHECK_MESSAGE(both.output.find("exclude each other") != std::string::npos, both.output);
  const test::Finished found = workshop.train(1, "--search --ranks 2 --for h100-80gb");
  CHECK_MESSAGE(found.exit_code == 0, found.output);
  CHECK_MESSAGE(found.output.find("limited by") != std::string::npos, found.output);
}

TEST_CASE("a search for the processors of its ranks measures them, and can print all that it simulated") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("search_cpu");
  const test::Finished found = workshop.train(2, "--search --for cpu --verbose");
  CHECK_MESSAGE(found.exit_code == 0, found.output);
  CHECK(
      test::missing_from(found.output, {"for 2 ranks of the CPU", "tok/s/rank", "measured now: for each rank",
                                        "the fastest first:", "ms  the config as it is"}) == "");
  const test::Finished alone = workshop.train(1, "--plan --for cpu");
  CHECK_MESSAGE(alone.exit_code == 0, alone.output);
  CHECK(test::missing_from(alone.output, {"are free for a rank now", "of the measured peak"}) == "");
  const size_t share = alone.output.rfind(" % of the measured peak");
  CHECK(std::stod(alone.output.substr(alone.output.rfind(' ', share - 1))) <= 100);
  const test::Finished planned = workshop.train(2, "--plan --for cpu");
  CHECK_MESSAGE(planned.exit_code == 0, planned.output);
  const auto number_before = [&](const char* words) {
    const size_t end = planned.output.find(words);
    REQUIRE_MESSAGE(end != std::string::npos, planned.output);
    const size_t begin = planned.output.rfind(' ', end - 1) + 1;
    return planned.output.substr(begin, end - begin);
  };
  // Measured once, for both.
  CHECK(number_before(" GB/s (measured)") == number_before(" GB/s between ranks"));
  const test::Finished refused = workshop.train(1, "--search --for cpu --ranks 2");
  CHECK_MESSAGE(refused.output.find("leave out --ranks") != std::string::npos, refused.output);
}
