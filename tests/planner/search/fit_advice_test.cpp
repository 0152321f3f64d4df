#include "planner/search/fit_advice.h"

#include <algorithm>

#include "planner/search/setting_search.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

Config small_config() {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 1, .hidden = 16, .heads = 2, .ffn = 24, .vocab = 31};
  c.data.seq_len = 8;
  c.train.steps = 1;
  c.train.total_batch_size = 8;
  c.train.batch_size_per_device = 1;
  c.optimizer.lr = 1e-3;
  return c;
}

// A run of 100 bytes divided by the ranks, of which some settings save a part. Adapters exclude offload.
std::optional<PlannedRun> invented_plan(const Config& c, int ranks) {
  if (c.train.total_batch_size < ranks || (c.lora.rank > 0 && c.parallel.offload)) return std::nullopt;
  int64_t bytes = 100 / ranks;
  if (c.train.recompute == Recompute::full) bytes -= 5;
  if (c.parallel.reduction == Reduction::sequential) bytes -= 20;
  if (c.train.head_chunk < 4096) bytes -= 2;
  if (c.parallel.offload) bytes -= 30;
  if (c.optimizer.kind.paged) bytes += 1;
  if (c.lora.rank > 0) bytes -= 60;
  return PlannedRun{.device_bytes = bytes, .host_bytes = 0, .seconds = 1};
}

FitAdvice advice_for(const Config& config, int64_t usable) {
  return advise(config, 1, *invented_plan(config, 1), usable, invented_plan);
}

}  // namespace

TEST_CASE("advice lists the switches that save memory, and no others") {
  std::vector<std::string> listed;
  for (const MemorySwitch& s : advice_for(small_config(), 0).switches) {
    listed.push_back(s.arguments);
    CHECK(s.alone.device_bytes < 100);
  }
  CHECK(listed == std::vector<std::string>{"--train.recompute=true", "--train.head_chunk=256",
                                           "--parallel.reduction=sequential", "--parallel.offload=true",
                                           "--lora.rank=16"});
  Config recomputing = small_config();
  recomputing.train.recompute = Recompute::full;
  CHECK(advice_for(recomputing, 0).switches.size() == 4);
}

TEST_CASE("advice takes the switches with the least consequences, and none that is not needed") {
  const auto enough = [](int64_t usable) { return advice_for(small_config(), usable).enough; };
  CHECK(enough(95) == std::vector<std::string>{"--train.recompute=true"});
  CHECK(enough(80) == std::vector<std::string>{"--parallel.reduction=sequential"});
  CHECK(enough(75) == std::vector<std::string>{"--train.recompute=true", "--parallel.reduction=sequential"});
  CHECK(enough(50) == std::vector<std::string>{"--parallel.reduction=sequential", "--parallel.offload=true"});
  CHECK(advice_for(small_config(), 50).with_enough.device_bytes == 50);
  CHECK(enough(10).empty());
}

TEST_CASE("advice doubles the ranks until the run fits or the batch is too small") {
  CHECK(advice_for(small_config(), 30).ranks == 4);
  CHECK(advice_for(small_config(), 12).ranks == 8);
  CHECK(!advice_for(small_config(), 11).ranks);
}

TEST_CASE("an estimate names its parts, what limits the step, and what it assumes") {
  Config config = small_config();
  config.train.recompute = Recompute::full;
  const RunSetup setup = set_up(config, 2, {}, Purpose::plan);
  const RunPlan plan = plan_run(setup, 0);
  const Cluster cluster = usual_cluster(gpu_model("h100-80gb"));
  SimulatedStep step{.seconds = 2, .p10 = 1.9, .p50 = 2, .p90 = 2.1};
  step.parts = {.products = 1, .attention = 0.5, .reductions = 0.5};
  const std::string text = describe_estimate(step, setup, plan, cluster);
  CHECK(test::missing_from(text, {"2.00 s per step", "1.90 s to 2.10 s", "products 1.00 s, attention 500 ms",
                                  "waits for sums over ranks 500 ms", "--parallel.reduction=native",
                                  "not measured", "989 TFLOP/s"}) == "");
  step.parts = {.products = 2};
  CHECK(describe_limit(step, setup).find("--train.recompute=false") != std::string::npos);
  const double tokens = 8 * 8;
  CHECK(utilization(step, setup, plan, cluster) ==
        doctest::Approx(tokens * plan.flops.causal /
                        (2 * 2 * published_matrix_rate(cluster.gpu, setup.compute, false))));
}

TEST_CASE("every GPU that the help names can be planned for, and no other") {
  CHECK(std::string(gpu_model("h100-80gb").name) == "h100-80gb");
  CHECK(gpu_model_names().find("a100-40gb, a100-80gb") != std::string::npos);
  CHECK(test::error_of([] { gpu_model("v100"); }).find("must be one of a10-24gb, ") != std::string::npos);
}

TEST_CASE("--plan --for answers whether the run fits, in every build") {
  const test::Workshop workshop("plan_for");
  const test::Finished alone = workshop.train(1, "--for h100-80gb");
  CHECK_MESSAGE(alone.output.find("--for has no effect without --plan") != std::string::npos, alone.output);
  const test::Finished plan = workshop.train(1, "--plan --ranks 2 --for h100-80gb");
  CHECK(plan.exit_code == 0);
  CHECK(test::missing_from(plan.output, {"\n  nccl  ", "\nfits      "}) == "");
  const test::Finished large = workshop.train(
      1, "--plan --ranks 1 --for l4-24gb --model.hidden=4096 --model.layers=64 --model.ffn=16384");
  CHECK_MESSAGE(large.output.find("\ntoo large ") != std::string::npos, large.output);
  CHECK_MESSAGE(large.output.find("\nswitches, each alone:\n") != std::string::npos, large.output);
}
