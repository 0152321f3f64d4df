// The plans of pipeline stages, and their table.

#include "train/plan/stage_table.h"

#include "tests/comm/planned_rank.h"
#include "tests/test.h"
#include "train/step/training_runtime.h"

using namespace flatshard;

namespace {

constexpr int kStages = 4;

// One rank per stage, with two blocks in each of the middle stages.
Config config_of(PipelineSchedule schedule, const DeviceMap& map = DeviceMapKind::automatic) {
  Config config = test::planned_config("llama", 1, 8, 16);
  config.parallel.stages = kStages;
  config.parallel.schedule = schedule;
  config.parallel.device_map = map;
  return config;
}

int64_t activations(const RunPlan& plan) {
  for (const MemoryRow& row : plan.memory)
    if (row.name == "activations") return row.bytes;
  return 0;
}

std::string table_of(const DeviceMap& map) {
  return describe_stages(set_up(config_of(PipelineSchedule::one_f_one_b, map), kStages));
}

}  // namespace

TEST_CASE("with 1f1b, stage s of S plans the activations of S - s micro-batches, with gpipe those of all") {
  const RunSetup alternating = set_up(config_of(PipelineSchedule::one_f_one_b), kStages),
                 gpipe = set_up(config_of(PipelineSchedule::gpipe), kStages),
                 sequential = set_up(config_of(PipelineSchedule::sequential), kStages);
  std::vector<int64_t> bytes;
  for (int stage = 0; stage < kStages; ++stage) {
    CAPTURE(stage);
    const RunPlan plan = plan_run(alternating, stage);
    CHECK(plan.in_flight == kStages - stage);
    CHECK(plan_run(gpipe, stage).in_flight == 16);
    CHECK(plan_run(sequential, stage).in_flight == 1);
    bytes.push_back(activations(plan));
  }
  // Stages 1 and 2 have two blocks each.
  CHECK(bytes[1] > bytes[2]);
  CHECK(bytes[1] * 2 < bytes[2] * 3 + bytes[2]);
}

TEST_CASE("every stage of a run with frozen parameters or adapters plans what one stage trains") {
  for (const bool adapters : {false, true}) {
    CAPTURE(adapters);
    Config config = config_of(PipelineSchedule::one_f_one_b);
    if (adapters)
      config.lora.rank = 2;
    else
      config.trainable = {"*layers.1.*q_proj*", "*layers.6.*norm*", "lm_head*"};
    const RunSetup staged = set_up(config, kStages);
    config.parallel = {};
    const RunPlan one = plan_run(set_up(config, 1), 0);
    CHECK(one.trainable < one.parameters);
    for (int stage = 0; stage < kStages; ++stage) {
      CAPTURE(stage);
      const RunPlan plan = plan_run(staged, stage);
      CHECK(plan.trainable == one.trainable);
      CHECK(plan.parameters == one.parameters);
      CHECK(plan.flops.full == one.flops.full);
    }
  }
}

// A frozen block has two thirds of the work of a trained one.
TEST_CASE("the automatic map knows which blocks are frozen") {
  Config config = config_of(PipelineSchedule::one_f_one_b);
  config.parallel.stages = 2;
  const auto first_stage_ends = [&] { return set_up(config, 2).pipeline.chunks.front().end; };
  const int all = first_stage_ends();
  config.trainable = {"*layers.7.*", "*layers.6.*", "*layers.5.*", "lm_head*"};
  CHECK(first_stage_ends() > all);
}

TEST_CASE("the table of stages names a better map if there is one") {
  const std::string better = "parallel.device_map = \"auto\" has at most";
  CHECK(table_of(DeviceMapKind::automatic).find(better) == std::string::npos);
  const std::map<std::string, double> uneven{{"model", 0},          {"model.layers.5", 1},
                                             {"model.layers.6", 2}, {"model.layers.7", 2},
                                             {"model.norm", 3},     {"lm_head", 3}};
  const std::string table = table_of(uneven);
  CAPTURE(table);
  CHECK(table.find(better) != std::string::npos);
  CHECK(table.find("embedding, blocks 0-4") != std::string::npos);
  CHECK(table.find("block 5 ") != std::string::npos);
}
