// A rank of a pipeline by itself: what it receives is made up (mirror_communicator.h), so that its results
// are a function of the config, and no stream order may change a bit of them. rank_matrix compares whole
// pipelines with one rank.

#include <algorithm>
#include <memory>

#include "runtime/memory.h"
#include "runtime/rng.h"
#include "runtime/sha256.h"
#include "tests/comm/mirror_communicator.h"
#include "tests/test.h"
#include "text/data/data.h"
#include "train/step/engine.h"

using namespace flatshard;
using test::MirrorCommunicator;

namespace {

constexpr int64_t kVocab = 61, kLength = 8;

const TokenFile& corpus() {
  static const TokenFile file = [] {
    TokenWriter writer("pipeline_step_test.tok", kVocab);
    const RandomStream random(5, "corpus");
    std::vector<int32_t> tokens(600);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(random.bits(static_cast<int64_t>(i)) % kVocab);
    writer.add_document(tokens);
    writer.finish();
    return TokenFile("pipeline_step_test.tok");
  }();
  return file;
}

struct Case {
  std::string family;
  PipelineSchedule schedule;
  int layers, stage;
  Recompute recompute;
  std::vector<std::string> trainable{"*"};
  bool in_host_memory = false;
};

Config config_of(const Case& c) {
  Config config;
  config.run.device = DeviceChoice::cpu;
  config.model = {.family = c.family, .layers = 7, .hidden = 16, .heads = 2, .ffn = 24, .vocab = kVocab};
  config.data.train = config.data.eval = "pipeline_step_test.tok";
  config.data.seq_len = kLength;
  config.train.steps = 2;
  config.train.eval_every = 1;
  config.train.eval_batch_size_per_device = 1;
  config.train.total_batch_size = 12 * 2;
  config.train.batch_size_per_device = 2;
  config.train.lane_size = 1;
  config.train.recompute = c.recompute;
  config.train.offload_activations = c.in_host_memory;
  config.optimizer.lr = 1e-2;
  config.trainable = c.trainable;
  config.parallel.stages = c.layers;
  config.parallel.schedule = c.schedule;
  return config;
}

// One rank of each stage, all but one of them mirrors.
class Stage {
 public:
  explicit Stage(const Case& c)
      : setup_(set_up(config_of(c), c.layers)),
        rank_(c.stage),
        pipe_(setup_.pipeline.stages, c.schedule == PipelineSchedule::interleaved,
              setup_.pipeline.embeds_apart, [&](const char* name) {
                auto link = std::make_unique<MirrorCommunicator>(name, rank_, setup_.pipeline.stages);
                links_.push_back(link.get());
                return link;
              }) {}

  // A hash of everything the rank computes and sends.
  std::string outcome(StreamOrder order) {
    MemoryPlan memory(setup_.device);
    {
      StreamSet planning(setup_.device, {.planning = true});
      Engine engine(setup_, rank_, comms_, pipe_, memory, planning);
      engine.plan_step();
      engine.plan_evaluation();
      engine.plan_first_and_last_values();
    }
    memory.commit({.poison = true});
    StreamSet streams(setup_.device, {.order = order});
    Engine engine(setup_, rank_, comms_, pipe_, memory, streams);
    const Data data(corpus(), {.seq_len = kLength,
                               .lane_sequences = setup_.batching.lane_sequences,
                               .total_sequences = setup_.batching.total_sequences});
    engine.initialize();
    Sha256 hash;
    const auto add = [&](const Tensor& t) { hash.add(t.data, static_cast<size_t>(t.bytes())); };
    for (int step = 0; step < 2; ++step) {
      const StepResult r = engine.step(data, {.data_step = step,
                                              .update = step + 1,
                                              .lr = 1e-2,
                                              .loss_scale = 1,
                                              .targets = data.target_count(step)});
      hash.add(r.lane_losses.data(), r.lane_losses.size_bytes());
      CHECK(r.finite);
      for (const SequenceLoss& loss : engine.evaluate(data, step)) hash.add(&loss, sizeof loss);
    }
    streams.sync_all();
    for (const ShardedUnit& unit : engine.units()) add(unit.shard().p);
    for (const MirrorCommunicator* link : links_) hash.add(link->sent().data(), link->sent().size());
    return hash.hex();
  }

 private:
  RunSetup setup_;
  int rank_;
  MirrorCommunicator compute_{"compute", 0, 1}, gather_{"gather", 0, 1}, reduce_{"reduce", 0, 1},
      replicas_{"replicas", 0, 1};
  Communicators comms_{compute_, gather_, reduce_, replicas_};
  std::vector<MirrorCommunicator*> links_;
  PipeCommunicators pipe_;
};

}  // namespace

TEST_CASE("a stage of a pipeline gives the same bits in every stream order") {
  for (const Case& c :
       {Case{"llama", PipelineSchedule::one_f_one_b, 3, 0, Recompute::none},
        Case{"llama", PipelineSchedule::one_f_one_b, 3, 1, Recompute::none},
        Case{"llama", PipelineSchedule::one_f_one_b, 3, 1, Recompute::full},
        Case{"llama", PipelineSchedule::one_f_one_b, 3, 1, Recompute::selective},
        Case{"llama", PipelineSchedule::one_f_one_b, 3, 1, Recompute::except_attention},
        Case{"llama", PipelineSchedule::one_f_one_b, 3, 1, Recompute::except_attention, {"*"}, true},
        Case{"llama", PipelineSchedule::interleaved, 3, 2, Recompute::full, {"*"}, true},
        Case{"llama", PipelineSchedule::one_f_one_b, 3, 2, Recompute::none},
        Case{"gpt2", PipelineSchedule::one_f_one_b, 3, 0, Recompute::none},
        Case{"gpt2", PipelineSchedule::one_f_one_b, 3, 2, Recompute::full},
        Case{"llama", PipelineSchedule::gpipe, 2, 0, Recompute::full},
        Case{"llama", PipelineSchedule::sequential, 2, 1, Recompute::none},
        Case{"llama", PipelineSchedule::interleaved, 3, 1, Recompute::none},
        Case{"llama", PipelineSchedule::interleaved, 3, 2, Recompute::full},
        Case{"llama", PipelineSchedule::one_f_one_b, 3, 1, Recompute::none, {"lm_head*"}}}) {
    CAPTURE(c.family);
    CAPTURE(c.schedule);
    CAPTURE(c.stage);
    CAPTURE(c.recompute);
    const std::string in_order = Stage(c).outcome(StreamOrder::in_order);
    for (const StreamOrder order :
         {StreamOrder::concurrent, StreamOrder::comm_late, StreamOrder::comm_early}) {
      CAPTURE(static_cast<int>(order));
      CHECK(Stage(c).outcome(order) == in_order);
    }
  }
}
