#include "train/setup/run_setup.h"

#include <functional>

#include "build_config.h"
#include "tests/test.h"
#include "train/setup/device_choice.h"

using namespace flatshard;

namespace {

Config config_of(Precision compute) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = "llama", .layers = 1, .hidden = 16, .heads = 2, .ffn = 24, .vocab = 31};
  c.data.seq_len = 8;
  c.train.steps = 1;
  c.train.total_batch_size = 1;
  c.optimizer.lr = 1e-3;
  c.precision.compute = compute;
  return c;
}

}  // namespace

TEST_CASE("TF32 is refused where there are no fp32 products to round") {
  for (const Precision compute : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    CAPTURE(compute);
    Config config = config_of(compute);
    config.precision.tf32 = true;
    const std::string error = test::error_of([&] { set_up(config, 1); });
    CHECK(error.empty() == (compute == Precision::fp32));
    if (!error.empty()) CHECK(error.find(str("but precision.compute is \"", compute)) != std::string::npos);
  }
}

TEST_CASE("a run folder has one canonical name, however it is spelled") {
  const auto named = [](const std::string& dir) {
    Config config = config_of(Precision::fp32);
    config.run.dir = dir;
    return set_up(config, 1).config.run.dir;
  };
  for (const char* same : {"runs/a", "runs/a/", "./runs//a", "runs/./a/.//"}) CHECK(named(same) == "runs/a");
  for (const char* here : {".", "./", ".//."}) CHECK(named(here) == ".");
  for (const char* kept : {"/", "/runs/a", "../a", "runs/../a", "-a", " a\n"}) CHECK(named(kept) == kept);
}

TEST_CASE("a missing GPU can be planned for but not trained on") {
  if (cuda_device_count() > 0) return test::skip("there is a GPU");
  Config config = config_of(Precision::bf16);
  config.run.device = DeviceChoice::cuda;
  config.train.total_batch_size = 2;
  CHECK(test::error_of([&] { set_up(config, 1); }).find(why_no_gpu()) != std::string::npos);
  const RunSetup setup = set_up(config, 2, {.rank = 1, .ranks = 2}, Purpose::plan);
  CHECK(setup.device == Device::cuda(1));
  CHECK_FALSE(setup.device_is_here);
  config.run.device = DeviceChoice::automatic;
  CHECK(set_up(config, 1, {}, Purpose::plan).device == Device::cpu());
}

TEST_CASE("a plan for unknown hosts has NCCL in every build, one for these ranks only if this build has it") {
  Config config = config_of(Precision::bf16);
  config.run.device = DeviceChoice::cuda;
  config.train.total_batch_size = 2;
  const HostPlace here{.ranks = 2, .hosts = {0, 0}};
  CHECK(set_up(config, 2, {}, Purpose::plan).transport == Transport::nccl);
  CHECK(set_up(config, 2, here, Purpose::plan).transport ==
        (kNcclBuilt ? Transport::nccl : Transport::staged));
  config.parallel.transport = TransportChoice::nccl;
  CHECK(set_up(config, 2, {}, Purpose::plan).transport == Transport::nccl);
  CHECK(test::error_of([&] { set_up(config, 2, here, Purpose::plan); }).empty() == kNcclBuilt);
  config.parallel.transport = TransportChoice::mpi;
  CHECK(set_up(config, 2, {}, Purpose::plan).transport == Transport::staged);
}

TEST_CASE(
    "what cannot be captured in graphs is an error where they are wanted, and leaves them out otherwise") {
  struct Excluded {
    const char* reason;
    int ranks;
    void (*change)(Config&);
  };
  for (const Excluded& e :
       {Excluded{"through MPI", 2, [](Config& c) { c.parallel.transport = TransportChoice::mpi; }},
        {"parallel.stages = 2", 2, [](Config& c) { c.model.layers = 4, c.parallel.stages = 2; }},
        {"parallel.offload", 1, [](Config& c) { c.parallel.offload = true; }},
        {"lora.dropout = 0.1", 1, [](Config& c) { c.lora.rank = 2, c.lora.dropout = 0.1; }},
        {"data.packing = \"documents\"", 1, [](Config& c) { c.data.packing = Packing::documents; }},
        {"130 micro-steps need as many graphs, more than 64", 1,
         [](Config& c) { c.train.total_batch_size = 130; }}}) {
    CAPTURE(e.reason);
    Config config = config_of(Precision::bf16);
    config.run.device = DeviceChoice::cuda;
    config.train.total_batch_size = 2;
    const auto setup = [&] { return set_up(config, e.ranks, {}, Purpose::plan); };
    const auto error_of = [&] { return test::error_of(setup); };
    config.run.cuda_graphs = CudaGraphs::on;
    CHECK(error_of() == "");
    CHECK(setup().uses_graphs());
    e.change(config);
    CHECK(test::missing_from(error_of(), {"run.cuda_graphs = true", e.reason, "to \"auto\""}) == "");
    for (const CudaGraphs other : {CudaGraphs::automatic, CudaGraphs::off}) {
      config.run.cuda_graphs = other;
      CHECK(error_of() == "");
      CHECK_FALSE(setup().uses_graphs());
      CHECK(setup().why_no_graphs.find(e.reason) != std::string::npos);
    }
    config.run.cuda_graphs = CudaGraphs::on;
    config.run.device = DeviceChoice::cpu;
    CHECK(error_of() == "");
    CHECK_FALSE(setup().uses_graphs());
  }
}

TEST_CASE("micro-steps are captured as graphs by default on one GPU, and on several where that is wanted") {
  Config config = config_of(Precision::bf16);
  config.train.total_batch_size = 2;
  const auto uses = [&](DeviceChoice device, int ranks, CudaGraphs wanted) {
    config.run.device = device;
    config.run.cuda_graphs = wanted;
    const RunSetup setup = set_up(config, ranks, {}, Purpose::plan);
    CHECK(resolved_config(setup, 1).run.cuda_graphs ==
          (setup.uses_graphs() ? CudaGraphs::on : CudaGraphs::off));
    return setup.uses_graphs();
  };
  CHECK(Config{}.run.cuda_graphs == CudaGraphs::automatic);
  CHECK(uses(DeviceChoice::cuda, 1, CudaGraphs::automatic));
  CHECK(uses(DeviceChoice::cuda, 1, CudaGraphs::on));
  CHECK_FALSE(uses(DeviceChoice::cuda, 1, CudaGraphs::off));
  CHECK_FALSE(uses(DeviceChoice::cuda, 2, CudaGraphs::automatic));
  CHECK(uses(DeviceChoice::cuda, 2, CudaGraphs::on));
  for (const CudaGraphs wanted : {CudaGraphs::automatic, CudaGraphs::on})
    CHECK_FALSE(uses(DeviceChoice::cpu, 1, wanted));
}

TEST_CASE("attention in one pass is refused for types and models that it does not support, on a GPU") {
  struct Refused {
    const char* reason;
    void (*change)(Config&);
  };
  for (const Refused& r : {Refused{"supports 16-bit types, but precision.compute is \"fp32\"",
                                   [](Config& c) { c.precision.compute = Precision::fp32; }},
                           {"but the model has 96", [](Config& c) { c.model.head_dim = 96; }},
                           {"but the model has 12", [](Config& c) { c.model.head_dim = 12; }},
                           {"no soft cap of scores, but the model has one of 30",
                            [](Config& c) { c.model.attention_softcap = 30.0; }}}) {
    CAPTURE(r.reason);
    Config config = config_of(Precision::bf16);
    config.model.head_dim = 64;
    config.run.device = DeviceChoice::cuda;
    config.run.attention = AttentionChoice::one_pass;
    const auto error_of = [&] { return test::error_of([&] { set_up(config, 1, {}, Purpose::plan); }); };
    CHECK(error_of() == "");
    r.change(config);
    CHECK(test::missing_from(error_of(), {"run.attention = \"one_pass\"", r.reason, "set it to \"auto\""}) ==
          "");
    config.run.device = DeviceChoice::cpu;
    CHECK(error_of() == "");
  }
}

TEST_CASE("a bandwidth between ranks by which no time could be told is refused") {
  Config config = config_of(Precision::fp32);
  for (const double gbps : {0.0, 1e-3, 400.0}) {
    config.parallel.bandwidth_gbps = gbps;
    CHECK(test::error_of([&] { set_up(config, 1); }).empty());
  }
  config.parallel.bandwidth_gbps = 1e-300;
  CHECK(test::missing_from(test::error_of([&] { set_up(config, 1); }),
                           {"parallel.bandwidth_gbps is 1e-300", "at least 0.001"}) == "");
}

TEST_CASE("a learning rate or clipping that fp32 cannot hold is refused, whatever scales it") {
  const auto error = [](auto&& change) {
    Config config = config_of(Precision::fp32);
    change(config.optimizer);
    return test::error_of([&] { set_up(config, 1); });
  };
  CHECK(error([](OptimizerConfig& o) { o.lr = 1e38; }) ==
        "optimizer.lr is 1e+38: the first step is 1e+39, must be from 1.17549e-38 to 3.40282e+38");
  CHECK(error([](OptimizerConfig& o) { o.lr = 1e-39; }).starts_with("optimizer.lr is 1e-39: the first step"));
  CHECK(error([](OptimizerConfig& o) {
          o.lr = 1e37, o.lr_scaling = LrScaling::linear, o.base_batch_size = 1;
        }) == "");
  CHECK(error([](OptimizerConfig& o) { o.lr = 1e30, o.weight_decay = 1e20; }) ==
        "optimizer.lr = 1e+30 times optimizer.weight_decay = 1e+20 is 1e+50, must be at most 3.40282e+38");
  CHECK(error([](OptimizerConfig& o) { o.grad_clip = 1e-320; }) ==
        "optimizer.grad_clip is 9.99989e-321, must be 0 (no clipping) or at least 1.17549e-38");
}

TEST_CASE("without scheduled evaluations data.eval is a warning, and what needs evaluations an error") {
  const auto set_up_with = [](auto&& change) {
    Config config = config_of(Precision::fp32);
    config.data.eval = "eval.tok";
    change(config);
    return set_up(config, 1);
  };
  for (const char* saves : {"30min", "10", "0"}) {
    const RunSetup setup = set_up_with([&](Config& c) { c.checkpoint.save_every = saves; });
    REQUIRE(setup.warnings.size() == 1);
    CHECK(test::missing_from(setup.warnings[0], {"data.eval", "train.eval_every"}) == "");
  }
  CHECK(set_up_with([](Config& c) { c.train.eval_each_epoch = true; }).warnings.empty());
  const auto missing = [&](const std::string& key, auto&& change) {
    return test::missing_from(test::error_of([&] { set_up_with(change); }), {key, "train.eval_every = 0"});
  };
  CHECK(missing("train.stop_after_no_improvement = 2",
                [](Config& c) { c.train.stop_after_no_improvement = 2; }) == "");
  CHECK(missing("checkpoint.best_every = \"2h\"", [](Config& c) { c.checkpoint.best_every = "2h"; }) == "");
  CHECK(missing("log.samples", [](Config& c) { c.log.samples = "prompts.txt"; }) == "");
}

TEST_CASE("an epsilon that the optimizer does not have is refused") {
  Config config = config_of(Precision::fp32);
  config.optimizer.kind = optimizer_named("paged_lion32bit").value();
  CHECK(test::error_of([&] { set_up(config, 1); }) == "");
  config.optimizer.eps = 1e-6;
  CHECK(test::error_of([&] { set_up(config, 1); }) ==
        "optimizer.eps has no effect with optimizer.kind = \"paged_lion32bit\", which has no epsilon: remove "
        "it");
  config.optimizer.kind = {};
  CHECK(test::error_of([&] { set_up(config, 1); }) == "");
}

TEST_CASE("a warm-up that is longer than the run is refused") {
  Config config = config_of(Precision::fp32);
  config.train.steps = 20;
  config.schedule.warmup_steps = 20;
  CHECK(test::error_of([&] { set_up(config, 1); }) == "");
  config.schedule.warmup_steps = 21;
  CHECK(test::error_of([&] { set_up(config, 1); }) ==
        "schedule.warmup_steps = 21 is longer than the run of 20 steps: lower it, or set "
        "schedule.warmup_ratio to a fraction of the run");
}

TEST_CASE("everything that pipeline stages exclude is refused at once") {
  Config config = config_of(Precision::bf16);
  config.model.layers = 2;
  config.train.total_batch_size = 3;
  config.parallel.stages = 2;
  config.parallel.wrap = WrapPolicy::none;
  CHECK(test::error_of([&] {
          set_up(config, 2);
        }).find("the unit \"model\" is used by several pipeline stages") != std::string::npos);
  config.parallel.schedule = PipelineSchedule::interleaved;
  config.parallel.device_map = "even";
  config.optimizer.betas[0] = 1;
  const std::string error = test::error_of([&] { set_up(config, 2); });
  CAPTURE(error);
  for (const char* part : {"in rounds of 2 pipeline stages, but a step has 3",
                           "parallel.device_map is \"even\"", "optimizer.betas are 1"})
    CHECK(error.find(part) != std::string::npos);
  CHECK(test::error_of([&] { set_up(config, 3); }).find("parallel.stages = 2 does not divide the 3 ranks") !=
        std::string::npos);
}

TEST_CASE("ranks that cannot divide experts are refused, with the reason") {
  Config good = config_of(Precision::fp32);
  good.model = {.family = "mixtral",
                .layers = 1,
                .hidden = 64,
                .heads = 2,
                .ffn = 64,
                .vocab = 31,
                .experts = 8,
                .experts_per_token = 2};
  good.train.total_batch_size = 8;
  good.train.lane_size = 1;
  good.parallel.expert_ranks = 4;
  const RunSetup setup = set_up(good, 8);
  CHECK(setup.levels_of(3).group.inside == 4);
  CHECK(setup.levels_of(3).group.between() == 2);
  CHECK(setup.uses_two_levels());
  const auto error = [&](const std::function<void(Config&)>& change, int ranks = 8) {
    Config c = good;
    change(c);
    return test::error_of([&] { set_up(c, ranks); });
  };
  const auto expect = [&](const std::function<void(Config&)>& change, const std::string& text) {
    const std::string found = error(change);
    CHECK_MESSAGE(found.find(text) != std::string::npos, found);
  };
  expect([](Config& c) { c.parallel.expert_ranks = 3; }, "parallel.expert_ranks = 3 must be a power of two");
  expect([](Config& c) { c.model.experts = 6; },
         "parallel.expert_ranks = 4 does not divide model.experts = 6");
  expect([](Config& c) { c.model = config_of(Precision::fp32).model; },
         "parallel.expert_ranks = 4 has no effect with model.family = llama, which has no experts");
  expect([](Config& c) { c.parallel.strategy = Strategy::shard_grad_op; },
         "needs sharded parameters: set parallel.strategy to \"full_shard\" or \"hybrid\", not "
         "\"shard_grad_op\"");
  expect([](Config& c) { c.parallel.strategy = Strategy::hybrid, c.parallel.group_size = 2; },
         "does not divide the 2 ranks that share one copy of the parameters");
  expect([](Config& c) { c.parallel.reduction = Reduction::sequential; }, "needs exact sums");
  expect([](Config& c) { c.parallel.accumulation = Accumulation::no_sync; },
         "needs parallel.accumulation = \"sharded\", not \"no_sync\"");
  expect([](Config& c) { c.parallel.levels = LevelChoice::one; }, "parallel.levels = \"one\" has no effect");
  expect([](Config& c) { c.parallel.levels = LevelChoice::two; }, "parallel.levels = \"two\" has no effect");
  expect([](Config& c) { c.precision.reduce = Precision::bf16; }, "needs precision.reduce = \"fp32\"");
  expect([](Config& c) { c.parallel.host_ranks = 2; },
         "ranks 0 to 3 span several hosts: set it to at most the ranks of a host");
  expect([](Config& c) { c.parallel.wrap = WrapPolicy::none; },
         "needs the experts of each block in a unit of their own, but unit \"model\" mixes them");
  expect(
      [](Config& c) { c.parallel.replicate = {"*experts.0.*"}; },
      "needs the experts of each block in a unit of their own, but unit \"replicated, blocks\" mixes them");
  expect([](Config& c) { c.trainable = {"*self_attn*"}; }, "needs all experts of a block fully trained");
  expect([](Config& c) { c.lora.rank = 2, c.lora.targets = ".*q_proj"; },
         "needs all experts of a block fully trained");
  expect([](Config& c) { c.model.hidden = 48; }, "do not divide into 8 shards of a multiple of 4096");
}
