#include "planner/simulate/simulated_step.h"

#include <chrono>

#include "tests/test.h"

using namespace flatshard;

namespace {

// A model whose products take long enough on a GPU to hide something behind them.
Config small_config() {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 4, .hidden = 1024, .heads = 16, .ffn = 2816, .vocab = 4096};
  c.data.seq_len = 1024;
  c.data.packing = Packing::wrapped;
  c.train.steps = 1;
  c.train.total_batch_size = 64;
  c.train.batch_size_per_device = 4;
  c.train.lane_size = 4;
  c.optimizer.lr = 1e-3;
  c.precision.compute = Precision::bf16;
  c.parallel.host_ranks = 8;
  return c;
}

const Cluster& h100() {
  static const Cluster cluster = usual_cluster(gpu_model("h100-80gb"));
  return cluster;
}

SimulatedStep simulated(const Config& config, int ranks, const Cluster& cluster = h100()) {
  return simulate_step(set_up(config, ranks, {}, Purpose::plan), cluster);
}

}  // namespace

TEST_CASE("a simulated step takes at least the time of its products, and its parts add up to it") {
  for (const int ranks : {1, 8, 16}) {
    CAPTURE(ranks);
    const SimulatedStep step = simulated(small_config(), ranks);
    CHECK(step.parts.products > 0);
    CHECK(step.seconds > step.parts.products);
    CHECK(step.parts.sum() == doctest::Approx(step.seconds).epsilon(0.02));
    CHECK(step.p10 <= step.p50);
    CHECK(step.p50 <= step.p90);
  }
}

TEST_CASE("a step of many micro-steps is as long as its rounds say") {
  Config config = small_config();
  config.train.total_batch_size = 24;  // 6 micro-steps of one rank
  const RunSetup setup = set_up(config, 1, {}, Purpose::plan);
  const double six = simulate_step(setup, h100()).seconds;
  config.train.total_batch_size = 48;
  const double twelve = simulated(config, 1).seconds;
  config.train.total_batch_size = 96;
  const double more = simulated(config, 1).seconds;
  CHECK(more - twelve == doctest::Approx(2 * (twelve - six)).epsilon(0.02));
}

TEST_CASE("a step takes longer with less bandwidth, more jitter and a crowded network") {
  const Config config = small_config();
  double last = 0;
  for (const double gbps : {400.0, 48.5, 10.0, 2.0}) {
    Cluster cluster = h100();
    cluster.nic_gbps = gbps;
    const double seconds = simulated(config, 16, cluster).seconds;
    CHECK(seconds >= last);
    last = seconds;
  }
  last = 0;
  for (const double jitter : {0.0, 0.005, 0.02, 0.05}) {
    Cluster cluster = h100();
    cluster.jitter_fixed = jitter;
    const double p50 = simulated(config, 16, cluster).p50;
    CHECK(p50 > last);
    last = p50;
  }
  last = 0;
  for (const double over : {1.0, 2.0, 4.0}) {
    Cluster cluster = h100();
    cluster.tiers = {{1, 1}, {1000, over}};
    const double seconds = simulated(config, 16, cluster).seconds;
    CHECK(seconds >= last);
    last = seconds;
  }
}

TEST_CASE("the band of a step is one of times, however much ranks differ") {
  for (const int ranks : {1, 2, 16})
    for (const double jitter : {0.005, 0.3, 1.0}) {
      CAPTURE(ranks);
      CAPTURE(jitter);
      Cluster cluster = h100();
      cluster.jitter_fixed = cluster.jitter_step = jitter;
      const SimulatedStep step = simulated(small_config(), ranks, cluster);
      CHECK(step.p10 > 0);
      CHECK(step.p10 < step.p50);
      CHECK(step.p50 < step.p90);
      // Half of the steps of one rank are faster than without jitter.
      if (ranks == 1) CHECK(step.p50 == doctest::Approx(step.seconds));
    }
}

TEST_CASE("without a network's latency and limits, few ranks and thousands take equally long") {
  Cluster cluster = h100();
  cluster.nic_gbps = cluster.link_gbps = 1e9;
  cluster.network_step_us = cluster.link_step_us = 0;
  cluster.jitter_fixed = cluster.jitter_step = 0;
  Config config = small_config();
  config.parallel.strategy = Strategy::hybrid;
  config.parallel.group_size = 8;
  const auto seconds = [&](int ranks) {
    config.train.total_batch_size = 4 * ranks;
    return simulated(config, ranks, cluster).seconds;
  };
  CHECK(seconds(16384) == doctest::Approx(seconds(16)).epsilon(0.05));
}

TEST_CASE("stages of a pipeline wait for each other, and less with more micro-batches") {
  Config config = small_config();
  config.parallel.stages = 4;
  config.train.batch_size_per_device = config.train.lane_size = 1;
  const auto idle = [&](int64_t batch) {
    config.train.total_batch_size = batch;
    const SimulatedStep step = simulated(config, 4);
    return step.parts.stages / step.seconds;
  };
  const double few = idle(4), many = idle(32);
  CHECK(few > many);
  CHECK(many > 0);
}
