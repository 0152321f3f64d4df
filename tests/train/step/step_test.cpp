// Training on one rank: settings that must not change the bits of the weights, and the memory of a step.
// tests/train/ranks_test.cpp tests several ranks.

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/parallel.h"
#include "runtime/rng.h"
#include "tests/test.h"
#include "tests/text/data/image_tokens.h"
#include "tests/train/image_workshop.h"
#include "tests/train/step/planned_bytes.h"
#include "train/plan/reductions.h"
#include "train/step/training_runtime.h"
#include "train/step/weights.h"

using namespace flatshard;

namespace {

constexpr int64_t kVocab = 61, kLength = 12;

// A corpus of documents of uneven lengths.
const TokenFile& corpus() {
  static const std::string path = "step_test.tok";
  static const TokenFile file = [] {
    TokenWriter writer(path, kVocab);
    const RandomStream random(5, "corpus");
    int64_t at = 0;
    for (int64_t document = 0; document < 40; ++document) {
      std::vector<int32_t> tokens(static_cast<size_t>(7 + 5 * (document % 6)));
      for (int32_t& t : tokens) t = static_cast<int32_t>(random.bits(at++) % kVocab);
      writer.add_document(tokens);
    }
    writer.finish();
    return TokenFile(path);
  }();
  return file;
}

Config small_config(const std::string& family = "llama") {
  Config c;
  c.run.seed = 3;
  c.model = {.family = family, .layers = 2, .hidden = 20, .heads = 2, .ffn = 28, .vocab = kVocab};
  c.data.train = "step_test.tok";
  c.data.seq_len = kLength;
  c.data.packing = Packing::documents;
  c.train.steps = 4;
  c.train.total_batch_size = 8;
  c.train.batch_size_per_device = 2;
  c.optimizer.lr = 1e-2;
  c.optimizer.weight_decay = 0.1;
  c.optimizer.grad_clip = 0.5;
  c.precision.compute = Precision::fp32;
  return c;
}

struct Outcome {
  std::string hash;
  std::vector<double> losses, norms;
  bool operator==(const Outcome&) const = default;
};

Outcome train(const Config& config, const TrainingRuntimeOptions& options = {}, int steps = 4) {
  World world;
  const RunSetup setup = set_up(config, 1);
  const Data data(corpus(), {.seq_len = kLength,
                             .lane_sequences = setup.batching.lane_sequences,
                             .total_sequences = setup.batching.total_sequences,
                             .packing = {.packing = setup.config.data.packing}});
  TrainingRuntime runtime(setup, world, options);
  runtime.engine().initialize();
  Outcome outcome;
  const double scale = setup.compute == DType::f16 ? 1024 : 1;
  for (int step = 0; step < steps; ++step) {
    const StepResult r = runtime.engine().step(data, {.data_step = step,
                                                      .update = step + 1,
                                                      .lr = 1e-2,
                                                      .loss_scale = scale,
                                                      .targets = data.target_count(step)});
    double loss = 0;
    for (const double lane : r.lane_losses) loss += lane / scale;
    outcome.losses.push_back(loss);
    outcome.norms.push_back(r.grad_norm);
    CHECK(r.finite);
  }
  outcome.hash = weights_hash(runtime.engine(), world);
  return outcome;
}

constexpr CommitOptions kPoisoned{.poison = true};

}  // namespace

TEST_CASE("training lowers the loss from that of a uniform guess") {
  for (const Precision compute : {Precision::fp32, Precision::bf16, Precision::fp16}) {
    CAPTURE(compute);
    Config config = small_config();
    config.precision.compute = compute;
    const Outcome outcome = train(config, {.commit = kPoisoned}, 30);
    CHECK(outcome.losses.front() == doctest::Approx(std::log(kVocab)).epsilon(0.01));
    CHECK(outcome.losses.back() < 0.9 * outcome.losses.front());
  }
}

TEST_CASE("recomputing activations gives the same bits") {
  for (const char* family : {"llama", "gpt2", "qwen3", "gemma2", "olmo2", "phi3"})
    for (const Precision compute : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      CAPTURE(family);
      CAPTURE(compute);
      Config config = small_config(family);
      config.precision.compute = compute;
      const Outcome kept = train(config);
      for (const Recompute recompute : {Recompute::full, Recompute::selective, Recompute::except_attention}) {
        CAPTURE(recompute);
        config.train.recompute = recompute;
        CHECK(train(config, {.commit = kPoisoned}) == kept);
      }
    }
}

TEST_CASE("tiles add their gradients in order, whatever is recomputed") {
  for (const char* family : {"llama", "gpt2", "qwen3", "gemma2", "olmo2", "granite"})
    for (const Precision compute : {Precision::fp32, Precision::bf16}) {
      CAPTURE(family);
      CAPTURE(compute);
      Config config = small_config(family);
      config.precision.compute = compute;
      const Outcome whole = train(config);
      config.train.tile = config.train.batch_size_per_device * kLength;
      CHECK(train(config, {.commit = kPoisoned}) == whole);  // one tile
      config.train.tile = 7;
      const Outcome tiled = train(config, {.commit = kPoisoned});
      CHECK(tiled.hash != whole.hash);
      if (compute == Precision::fp32)
        for (size_t step = 0; step < tiled.losses.size(); ++step)
          CHECK(tiled.losses[step] == doctest::Approx(whole.losses[step]).epsilon(1e-6));
      for (const Recompute recompute : {Recompute::full, Recompute::selective, Recompute::except_attention}) {
        CAPTURE(recompute);
        config.train.recompute = recompute;
        CHECK(train(config, {.commit = kPoisoned}) == tiled);
      }
    }
}

TEST_CASE("activations in host memory give the same bits in every stream order") {
  for (const Recompute recompute : {Recompute::full, Recompute::except_attention})
    for (const int64_t tile : {0, 5}) {
      CAPTURE(recompute);
      CAPTURE(tile);
      Config config = small_config();
      config.model.layers = 6;
      config.train.lane_size = 1;
      config.train.tile = tile;
      const Outcome kept = train(config);
      config.train.recompute = recompute;
      config.train.offload_activations = true;
      for (const StreamOrder order : {StreamOrder::in_order, StreamOrder::concurrent, StreamOrder::comm_late,
                                      StreamOrder::comm_early}) {
        CAPTURE(static_cast<int>(order));
        CHECK(train(config, {.order = order, .commit = kPoisoned}) == kept);
      }
    }
}

TEST_CASE("a step gives the same bits in every stream order") {
  for (const char* family : {"llama", "gpt2"}) {
    CAPTURE(family);
    Config config = small_config(family);
    config.train.lane_size = 1;
    const Outcome in_order = train(config, {.commit = kPoisoned});
    for (const StreamOrder order : {StreamOrder::comm_late, StreamOrder::comm_early})
      CHECK(train(config, {.order = order, .commit = kPoisoned}) == in_order);
  }
}

TEST_CASE("training gives the same bits on one thread and on several") {
  Config config = small_config();
  config.precision.compute = Precision::bf16;
  const int threads = thread_count();
  set_thread_count(1);
  const Outcome one = train(config);
  for (const int count : {2, 3}) {
    set_thread_count(count);
    CHECK(train(config) == one);
  }
  set_thread_count(threads);
}

TEST_CASE("the same lanes give the same bits in any division into micro-steps") {
  for (const char* family : {"llama", "gpt2"})
    for (const int64_t lane : {1, 2}) {
      CAPTURE(family);
      CAPTURE(lane);
      Config config = small_config(family);
      config.train.lane_size = lane;
      config.train.batch_size_per_device = lane;
      const Outcome one_lane_at_a_time = train(config);
      for (int64_t batch = 2 * lane; batch <= 8; batch *= 2) {
        config.train.batch_size_per_device = batch;
        CHECK(train(config, {.commit = kPoisoned}) == one_lane_at_a_time);
      }
    }
}

TEST_CASE("other lanes give other bits but nearly the same gradients") {
  Config config = small_config();
  config.train.batch_size_per_device = config.train.lane_size = 1;
  const Outcome small_lanes = train(config);
  config.train.batch_size_per_device = config.train.lane_size = 8;
  const Outcome one_lane = train(config);
  constexpr double kRounding = 1e-4;  // of sums in another order, after four steps
  for (size_t i = 0; i < small_lanes.losses.size(); ++i) {
    CHECK(small_lanes.losses[i] == doctest::Approx(one_lane.losses[i]).epsilon(kRounding));
    CHECK(small_lanes.norms[i] == doctest::Approx(one_lane.norms[i]).epsilon(kRounding));
  }
}

TEST_CASE("a lane of several micro-batches has the bits of adding them in order") {
  for (const char* family : {"llama", "gpt2"})
    for (const Precision compute : {Precision::fp32, Precision::bf16}) {
      CAPTURE(family);
      CAPTURE(compute);
      Config config = small_config(family);
      config.precision.compute = compute;
      const Outcome one_lane = train(config, {.commit = kPoisoned});
      config.train.lane_size = 8;
      CHECK(train(config, {.commit = kPoisoned}) == one_lane);
      config.train.lane_size = 2;
      config.parallel.reduction = Reduction::sequential;
      CHECK(train(config, {.commit = kPoisoned}) == one_lane);
      config.parallel.reduction = Reduction::exact;
      CHECK(train(config, {.commit = kPoisoned}) != one_lane);
    }
}

TEST_CASE("one rank sums a batch in one gradient buffer, and lanes of one micro-batch need several") {
  Config config = small_config();
  config.train.batch_size_per_device = 1;  // eight micro-steps
  const auto bytes = [](const Config& c, const char* arena) {
    return test::planned_bytes(plan_run(set_up(c, 1), 0), arena);
  };
  const RunSetup setup = set_up(config, 1);
  const RunPlan plan = plan_run(setup, 0);
  Arena tables("tables", setup.device);
  const Wrapping wrapping(Model(setup.model, tables), setup.wrap);
  int64_t elements = 0;
  for (const ParamList& params : wrapping.units()) elements += FlatLayout::trainable(params, 1).size();
  const int64_t one_buffer = test::planned_bytes(plan, "gradients"), sums = 4 * elements;
  CHECK(one_buffer >= sums);
  CHECK(one_buffer < 2 * sums);
  CHECK(test::planned_bytes(plan, "exchange") == 0);
  CHECK(cost_of_exact_sums(setup, plan, 0) == 0);
  config.train.lane_size = 1;
  CHECK(bytes(config, "gradients") == one_buffer + 3 * sums);
  config.train.lane_size = 4;  // two lanes
  CHECK(bytes(config, "gradients") == one_buffer + sums);
}

TEST_CASE("a smaller train.head_chunk takes less memory, in training and in evaluation") {
  Config config = small_config();
  const auto scratch = [&](int64_t chunk) {
    config.train.head_chunk = chunk;
    return test::planned_bytes(plan_run(set_up(config, 1), 0), "scratch");
  };
  config.model.vocab = 5000;  // so that nothing else takes as much
  const int64_t least = scratch(4), most = scratch(4096);
  CHECK(least < most);
  CHECK(scratch(2 * kLength) == most);
  config.data.eval = config.data.train;
  config.train.eval_every = 1;
  config.train.eval_batch_size_per_device = 8;
  CHECK(scratch(4) == least);
  CHECK(scratch(4096) > most);
}

TEST_CASE("rotary tables have the positions of sequences and samples, however many the model has") {
  for (const char* family : {"llama", "gemma3"}) {  // which has two tables
    CAPTURE(family);
    Config config = small_config(family);
    config.data.eval = config.data.train;
    config.train.eval_every = 1;
    const auto tables = [&](int64_t positions) {
      config.model.max_positions = positions;
      return test::planned_bytes(plan_run(set_up(config, 1), 0), "tables");
    };
    const int64_t least = tables(kLength), longer = tables(10'000'000);
    CHECK(least > 0);
    CHECK(longer == least);
    const Outcome outcome = train(config);
    config.log.samples = "prompts.txt";
    config.log.sample_length = kLength / 2;
    CHECK(tables(10'000'000) == least);
    config.log.sample_length = 3 * kLength;
    const int64_t of_samples = tables(10'000'000);
    CHECK(of_samples > least);
    CHECK(train(config) == outcome);
    config.log = {};
    config.model.max_positions = kLength;
    CHECK(train(config) == outcome);
    config.data.seq_len = 3 * kLength;
    CHECK(tables(3 * kLength) == of_samples);
  }
}

TEST_CASE("a run takes exactly the planned memory and a step allocates none") {
  for (const char* family : {"llama", "gpt2", "llama with adapters"})
    for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::selective}) {
      CAPTURE(family);
      CAPTURE(recompute);
      const std::string name(family);
      Config config = small_config(name.substr(0, name.find(' ')));
      if (name.ends_with("adapters")) config.lora = {.rank = 3, .dropout = 0.2};
      config.train.recompute = recompute;
      config.data.packing =
          Packing::wrapped;  // with documents masked, the plan holds for the shortest documents
      config.data.eval = config.data.train;
      config.train.eval_every = 1;
      config.train.eval_batch_size_per_device = 3;
      World world;
      const RunSetup setup = set_up(config, 1);
      const int64_t planned = plan_run(setup, world.rank()).memory_bytes,
                    live_before = memory_counters().live_bytes;
      TrainingRuntime runtime(setup, world);
      CHECK(runtime.plan().memory_bytes == planned);
      CHECK(memory_counters().live_bytes - live_before == planned);
      runtime.engine().initialize();
      const Data data(corpus(), {.seq_len = kLength, .lane_sequences = 2, .total_sequences = 8});
      const Data eval_data(corpus(),
                           {.seq_len = kLength, .lane_sequences = 3, .total_sequences = 3, .shuffle = false});
      const int64_t allocations = memory_counters().allocations;
      for (int step = 0; step < 3; ++step) {
        runtime.engine().step(data, {.data_step = step,
                                     .update = step + 1,
                                     .lr = 1e-3,
                                     .loss_scale = 1,
                                     .targets = data.target_count(step)});
        runtime.engine().evaluate(eval_data, step);
      }
      CHECK(memory_counters().allocations == allocations);
      CHECK(runtime.memory().peak() == planned);
    }
}

TEST_CASE("frozen parameters do not change, and the others train as before") {
  for (const Precision compute : {Precision::fp32, Precision::bf16})
    for (const std::vector<std::string>& trainable : {std::vector<std::string>{"model.layers.1.*"},
                                                      {"*norm*"},
                                                      {"lm_head.weight"},
                                                      {"*embed*", "*q_proj*"}}) {
      CAPTURE(compute);
      CAPTURE(trainable.front());
      Config config = small_config();
      config.precision.compute = compute;
      config.trainable = trainable;
      World world;
      const RunSetup setup = set_up(config, 1);
      TrainingRuntime runtime(setup, world, {.commit = kPoisoned});
      runtime.engine().initialize();
      const auto values = [&] {
        std::map<std::string, std::vector<char>> all;
        for (const ShardedUnit& unit : runtime.engine().units())
          for (size_t i = 0; i < unit.values().size(); ++i) {
            const char* data = static_cast<const char*>(unit.values()[i].data);
            all[unit.params().specs()[i].name] = {data, data + unit.values()[i].bytes()};
          }
        return all;
      };
      const auto before = values();
      const Data data(corpus(), {.seq_len = kLength, .lane_sequences = 2, .total_sequences = 8});
      for (int step = 0; step < 3; ++step)
        runtime.engine().step(data, {.data_step = step,
                                     .update = step + 1,
                                     .lr = 1e-2,
                                     .loss_scale = 1,
                                     .targets = data.target_count(step)});
      const auto after = values();
      for (const ShardedUnit& unit : runtime.engine().units())
        for (const ParamSpec& spec : unit.params().specs()) {
          CAPTURE(spec.name);
          CHECK((before.at(spec.name) == after.at(spec.name)) == !spec.trainable);
        }
    }
}

// Finds errors that are common to all settings: compares with the loss rather than with another run.
TEST_CASE("the optimizer receives the gradient of the mean loss") {
  constexpr double kScale = 8, kStep = 1e-2, kCurvature = 5e-3;  // of a central difference this wide, in f32
  for (const char* family : {"llama", "gpt2"})
    for (const int64_t lane : {1, 2}) {
      CAPTURE(family);
      CAPTURE(lane);
      Config config = small_config(family);
      config.train.lane_size = lane;
      World world;
      const RunSetup setup = set_up(config, 1);
      TrainingRuntime runtime(setup, world, {.commit = kPoisoned});
      runtime.engine().initialize();
      const Data data(corpus(), {.seq_len = kLength,
                                 .lane_sequences = lane,
                                 .total_sequences = 8,
                                 .packing = {.packing = Packing::documents}});
      const auto loss = [&] {
        const StepResult r = runtime.engine().step(
            data,
            {.data_step = 0, .update = 1, .lr = 0, .loss_scale = kScale, .targets = data.target_count(0)});
        double sum = 0;
        for (const double l : r.lane_losses) sum += l / kScale;
        return sum;
      };
      loss();
      for (const ShardedUnit& unit : runtime.engine().units()) {
        CAPTURE(unit.params().specs().front().name);
        const Tensor values = unit.shard().p, sums = unit.shard().g;
        const size_t n = static_cast<size_t>(values.size());
        std::vector<double> gradient(n);
        double norm = 0;
        for (size_t i = 0; i < n; ++i) {
          gradient[i] = static_cast<double>(sums.as<float>()[i]) / kScale;
          norm += gradient[i] * gradient[i];
        }
        norm = std::sqrt(norm);
        const std::vector<float> before(values.as<float>(), values.as<float>() + n);
        const auto moved = [&](double distance) {  // along the gradient
          for (size_t i = 0; i < n; ++i)
            values.as<float>()[i] =
                static_cast<float>(static_cast<double>(before[i]) + distance * gradient[i] / norm);
          return loss();
        };
        const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
        moved(0);
        CHECK(slope == doctest::Approx(norm).epsilon(kCurvature));
      }
    }
}

namespace {

// Visits the shards of the units with a parameter that reads images, on one rank.
template <class Visit>
void each_shard_of_images(Engine& engine, Visit&& visit) {
  for (const ShardedUnit& unit : engine.units())
    if (unit.params().specs().front().name.find("text_model") == std::string::npos &&
        unit.params().specs().front().name.find("lm_head") == std::string::npos)
      visit(unit.shard());
}

}  // namespace

TEST_CASE("without an image in the batch, AdamW updates the layers that read images by gradients of zero") {
  constexpr double kLr = 1e-3, kDecay = 0.1, kRounding = 1e-6;
  const std::string picture = test::picture("rgb_8.png");
  test::write_image_tokens("with_images.tok", {{{picture}, 9}, {{picture}, 5}}, test::input_of("idefics3"));
  test::write_image_tokens("without_images.tok", {{{}, 9}, {{}, 5}}, test::input_of("idefics3"));
  const TokenFile with("with_images.tok"), without("without_images.tok");
  Config config = small_config();
  config.model = test::model_for_images("idefics3");
  config.data.packing = Packing::none;
  config.data.max_patches = 8;
  config.train.total_batch_size = 2;
  config.optimizer.weight_decay = kDecay;
  config.optimizer.grad_clip = 0;
  World world;
  const RunSetup setup = set_up(config, 1);
  TrainingRuntime runtime(setup, world);
  Engine& engine = runtime.engine();
  engine.initialize();
  const auto step = [&](const TokenFile& file, int64_t update) {
    const Data data(file, {.seq_len = kLength,
                           .lane_sequences = 2,
                           .total_sequences = 2,
                           .packing = {.packing = Packing::none, .max_patches = 8}});
    engine.step(
        data,
        {.data_step = 0, .update = update, .lr = kLr, .loss_scale = 1, .targets = data.target_count(0)});
  };
  step(with, 1);
  std::vector<std::vector<float>> before;
  each_shard_of_images(engine, [&](const OptimizerShard& shard) {
    for (const Tensor& t : {shard.p, shard.state[0], shard.state[1]})
      before.emplace_back(t.as<float>(), t.as<float>() + t.size());
  });
  step(without, 2);
  const auto [beta1, beta2] = config.optimizer.betas;
  size_t unit = 0, moved = 0;
  each_shard_of_images(engine, [&](const OptimizerShard& shard) {
    const std::vector<float>&p = before[unit], &m = before[unit + 1], &v = before[unit + 2];
    unit += 3;
    for (int64_t i = 0; i < shard.p.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      const double m2 = beta1 * m[at], v2 = beta2 * v[at];
      const double moments =
          m2 / (1 - beta1 * beta1) / (std::sqrt(v2 / (1 - beta2 * beta2)) + config.optimizer.eps);
      const double decayed = p[at] * (i < shard.decay_end ? 1 - kLr * kDecay : 1);
      CHECK(shard.state[0].as<float>()[i] == doctest::Approx(m2).epsilon(kRounding));
      CHECK(shard.state[1].as<float>()[i] == doctest::Approx(v2).epsilon(kRounding));
      CHECK(std::abs(shard.p.as<float>()[i] - (decayed - kLr * moments)) < kRounding);
      moved += m[at] != 0 ? 1 : 0;
    }
  });
  CHECK(unit > 3);
  CHECK(moved > 100);
}

TEST_CASE("non-finite gradients change nothing") {
  Config config = small_config();
  config.precision.compute = Precision::fp16;
  World world;
  const RunSetup setup = set_up(config, 1);
  TrainingRuntime runtime(setup, world);
  runtime.engine().initialize();
  const Data data(corpus(), {.seq_len = kLength, .lane_sequences = 2, .total_sequences = 8});
  const std::string before = weights_hash(runtime.engine(), world);
  const StepInputs inputs{
      .data_step = 0, .update = 1, .lr = 1e-2, .loss_scale = 1e30, .targets = data.target_count(0)};
  CHECK(!runtime.engine().step(data, inputs).finite);
  CHECK(weights_hash(runtime.engine(), world) == before);
}

TEST_CASE("a global batch does not depend on its division, nor an evaluation on its batch size") {
  Config config = small_config();
  config.data.eval = config.data.train;
  config.train.eval_every = 1;
  std::map<int64_t, double> losses;
  for (const int64_t batch : {1, 3, 8}) {
    config.train.eval_batch_size_per_device = batch;
    World world;
    const RunSetup setup = set_up(config, 1);
    TrainingRuntime runtime(setup, world, {.commit = kPoisoned});
    runtime.engine().initialize();
    const Data data(corpus(), {.seq_len = kLength,
                               .lane_sequences = batch,
                               .total_sequences = batch,
                               .packing = {.packing = Packing::documents},
                               .shuffle = false});
    double sum = 0, targets = 0;
    for (int64_t i = 0; i < data.steps_per_epoch(); ++i)
      for (const SequenceLoss& s : runtime.engine().evaluate(data, i)) sum += s.sum, targets += s.targets;
    losses[batch] = sum / targets;
  }
  constexpr double kRounding = 1e-6;  // matrix products of other sizes may sum in another order
  CHECK(losses[3] == doctest::Approx(losses[1]).epsilon(kRounding));
  CHECK(losses[8] == doctest::Approx(losses[1]).epsilon(kRounding));
}
