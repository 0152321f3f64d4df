#include "planner/planning.h"

#include "planner/search/setting_search.h"
#include "runtime/text.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/plan/saved_plan.h"

using namespace flatshard;

namespace {

Config config_of(const char* family) {
  Config c;
  c.run.device = DeviceChoice::cuda;
  c.run.cuda_graphs = CudaGraphs::off;
  c.model = {.family = family, .layers = 4, .hidden = 512, .heads = 8, .kv_heads = 4, .vocab = 5000};
  c.data.seq_len = 384;
  c.train.steps = 1;
  c.train.total_batch_size = 16;
  c.optimizer.lr = 1e-3;
  return c;
}

Config tf32() {
  Config c = config_of("qwen3");
  c.precision.compute = Precision::fp32;
  c.precision.tf32 = true;
  c.train.recompute = Recompute::full;
  c.parallel.strategy = Strategy::zero1;
  return c;
}

// LayerNorm, biases, learned positions; f16, whose biases are widened for fp32 outputs.
Config with_biases() {
  Config c = config_of("gpt2");
  c.model.kv_heads = 0;
  c.precision.compute = Precision::fp16;
  c.train.recompute = Recompute::selective;
  c.train.batch_size_per_device = 2;
  return c;
}

Config adapters() {
  Config c = config_of("llama");
  c.lora.rank = 16;
  c.quant.base = FourBitKind::nf4;
  c.quant.nested = true;
  c.optimizer.kind = *optimizer_named("adamw8bit");
  return c;
}

Config offloaded() {
  Config c = config_of("gemma2");
  c.parallel.offload = true;
  c.parallel.reduction = Reduction::sequential;
  return c;
}

}  // namespace

// The machine that plans need not have what it plans for. Builds with and without CUDA, NCCL and cuBLASLt run
// this test, and must agree.
TEST_CASE("a plan for GPUs has the same numbers in every build") {
  struct Row {
    std::string what;
    Config config;
    int ranks;
    int64_t device, host, nccl, received;  // bytes
    double microseconds;                   // of a step
  };
  const Cluster h100 = usual_cluster(gpu_model("h100-80gb"));
  for (const auto& [what, config, ranks, device, host, nccl, received, microseconds] :
       {Row{"one rank", config_of("llama"), 1, 452462592, 102912, 0, 0, 13885.1},
        {"sharded over two hosts", config_of("llama"), 16, 178609408, 6912, 838860800, 149441520, 1372.22},
        {"tf32", tf32(), 2, 625725952, 51712, 369098752, 83568600, 37318.8},
        {"with biases", with_biases(), 1, 368245504, 100864, 0, 0, 8196.39},
        {"adapters on 4-bit weights", adapters(), 2, 117849088, 51712, 369098752, 93729120, 11799.9},
        {"offloaded", offloaded(), 4, 163764224, 86628864, 402653184, 413799564, 9902.14}}) {
    CAPTURE(what);
    const RunSetup setup = set_up(config, ranks, {}, Purpose::plan);
    const RunPlan plan = plan_run(setup, 0);
    CHECK(plan.memory_bytes - plan.host_bytes == device);
    CHECK(plan.host_bytes == host);
    CHECK(plan.nccl_bytes == nccl);
    CHECK(plan.units.bytes().all() == received);
    CHECK(1e6 * simulate_step(setup, h100).seconds == doctest::Approx(microseconds).epsilon(1e-5));
  }
}

TEST_CASE("a step on one GPU is simulated with graphs where the run uses them") {
  const Cluster h100 = usual_cluster(gpu_model("h100-80gb"));
  const auto seconds = [&](int ranks, CudaGraphs wanted, Packing packing) {
    Config config = config_of("llama");
    config.run.cuda_graphs = wanted;
    config.data.packing = packing;
    return simulate_step(set_up(config, ranks, {}, Purpose::plan), h100).seconds;
  };
  const double without = seconds(1, CudaGraphs::off, Packing::wrapped),
               with = seconds(1, CudaGraphs::on, Packing::wrapped);
  CHECK(with < without);
  CHECK(seconds(1, CudaGraphs::automatic, Packing::wrapped) == with);
  CHECK(seconds(1, CudaGraphs::automatic, Packing::documents) ==
        seconds(1, CudaGraphs::off, Packing::documents));
  CHECK(seconds(2, CudaGraphs::automatic, Packing::wrapped) == seconds(2, CudaGraphs::off, Packing::wrapped));
}

TEST_CASE("a config is planned with a published model in place of its own, and is not trained so") {
  const test::Workshop workshop("planned_shape");
  const test::Finished plan =
      workshop.train(1, "--plan --ranks 4 --model qwen2.5-0.5b --run.device=cuda --data.seq_len=512");
  CHECK_MESSAGE(plan.exit_code == 0, plan.output);
  CHECK(test::missing_from(plan.output, {"qwen2, 24 layers, hidden 896", "all params: 494,032,768",
                                         "planned for a GPU", "\n  nccl  "}) == "");
  const test::Finished trained = workshop.train(1, "--model qwen2.5-0.5b");
  CHECK(test::missing_from(trained.output, {"--model has no effect without --plan"}) == "");
  const test::Finished unknown = workshop.train(1, "--plan --model llama-9");
  CHECK(test::missing_from(unknown.output, {"--model", "llama-9", "llama-3.1-70b"}) == "");
}

TEST_CASE("a plan for other machines is checked for their devices") {
  const test::Workshop workshop("planned_devices");
  const test::Finished plan =
      workshop.train(1, "--plan --for h100-80gb --run.device=cpu --parallel.transport=nccl");
  CHECK_MESSAGE(plan.exit_code == 0, plan.output);
  CHECK_MESSAGE(plan.output.find("\nfits      ") != std::string::npos, plan.output);
}

TEST_CASE("--save adds a line to a plan, and writes its memory, time and timeline into the run folder") {
  const test::Workshop workshop("saved_plan");
  const std::string options = "--plan --ranks 2 --for h100-80gb --run.dir=runs/planned";
  const test::Finished printed = workshop.train(1, options), saved = workshop.train(1, options + " --save");
  CHECK_MESSAGE(saved.exit_code == 0, saved.output);
  const SavedPlan plan = read_plan(workshop.file("runs/planned/plan.json"));
  CHECK(saved.output == str(printed.output, "saved     runs/planned/plan.json: ", human_seconds(plan.seconds),
                            " per step\n"));
  Config config = load_config(workshop.file("config.toml"), {}).config;
  config.run.device = DeviceChoice::cuda;
  const RunSetup setup = set_up(config, 2, {}, Purpose::plan);
  CHECK(plan.machines == "h100-80gb");
  CHECK(plan.seconds == simulate_step(setup, usual_cluster(gpu_model("h100-80gb"))).p50);
  CHECK(plan.settings == planned_settings(setup));
  const std::vector<MemoryRow> memory = plan_run(setup, 0).memory;
  REQUIRE(plan.memory.size() == memory.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    CHECK(plan.memory[i].name == memory[i].name);
    CHECK(plan.memory[i].bytes == memory[i].bytes);
  }
  CHECK(plan.timeline.ranks.size() == 1);
}

TEST_CASE("a plan is saved for the machines that --for names, or for those of this job") {
  const test::Workshop workshop("saved_machines");
  const auto refused = [&](const char* options) {
    const test::Finished run = workshop.train(1, options);
    CHECK(run.exit_code == 1);
    return run.output;
  };
  CHECK(test::missing_from(refused("--save"), {"--save", "--plan"}) == "");
  CHECK(test::missing_from(refused("--plan --save --ranks 4"), {"--save", "4", "--for"}) == "");
  REQUIRE(workshop.train(1, "--plan --save --run.device=cpu").exit_code == 0);
  CHECK(read_plan(workshop.file("runs/default/plan.json")).machines == "the CPU");
}
