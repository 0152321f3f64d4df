// Training of adapters on one rank: the values of PEFT, the masks of dropout, and the work of a step.
// tests/comm/rank_matrix.cpp compares the bits on several ranks.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "hub/adapter_folder.h"
#include "hub/initial_values.h"
#include "hub/published_weights.h"
#include "runtime/rng.h"
#include "runtime/trace.h"
#include "source_dir.h"
#include "tests/golden.h"
#include "tests/test.h"
#include "tests/train/step/planned_bytes.h"
#include "train/step/training_runtime.h"
#include "train/step/weights.h"

using namespace flatshard;

namespace {

using Golden = std::map<std::string, test::GoldenTensor>;

const std::string kGolden = str(kSourceDir, "/tests/golden/");

Config config_of(const std::string& family) {
  Config c;
  c.run.seed = 3;
  c.model = {.family = family, .layers = 2, .hidden = 32, .heads = 2, .ffn = 48, .vocab = 61};
  c.lora.rank = 4;
  c.data.seq_len = 13;
  c.data.packing = Packing::none;
  c.train.steps = 5;
  c.train.total_batch_size = 2;
  c.optimizer.lr = 1e-3;
  c.optimizer.weight_decay = 0.01;
  c.precision.compute = Precision::fp32;
  return c;
}

// One document per sequence: the tokens and the target of the last one.
TokenFile token_file(const std::string& path, const std::vector<std::vector<int32_t>>& documents,
                     int64_t vocab) {
  TokenWriter writer(path, vocab);
  for (const std::vector<int32_t>& tokens : documents) writer.add_document(tokens);
  writer.finish();
  return TokenFile(path);
}

class Run {
 public:
  Run(const Config& config, const TokenFile& file, const TrainingRuntimeOptions& options = {})
      : setup_(set_up(config, 1)),
        data_(file, {.seq_len = setup_.seq_len(),
                     .lane_sequences = setup_.batching.lane_sequences,
                     .total_sequences = setup_.batching.total_sequences,
                     .packing = {.packing = setup_.config.data.packing},
                     .shuffle = false}),
        runtime_(setup_, world_, options) {}

  Engine& engine() { return runtime_.engine(); }
  std::string hash() { return weights_hash(engine(), world_); }
  const RunPlan& plan() const { return runtime_.plan(); }
  StepResult step(int64_t index) {
    return engine().step(data_, {.data_step = index,
                                 .update = index + 1,
                                 .lr = 1e-3,
                                 .loss_scale = 1,
                                 .targets = data_.target_count(index)});
  }

 private:
  World world_;
  RunSetup setup_;
  Data data_;
  TrainingRuntime runtime_;
};

double loss_of(const StepResult& r) {
  double sum = 0;
  for (const double lane : r.lane_losses) sum += lane;
  return sum;
}

// The trained values, or their gradients, by PEFT's names.
std::map<std::string, std::vector<double>> trained(Engine& engine, Tensor OptimizerShard::*of) {
  std::map<std::string, std::vector<double>> values;
  for (const ShardedUnit& unit : engine.units())
    for (const FlatLayout::Extent& e : unit.trainable().extents())
      values[adapter_tensor_name(unit.params()[e.param].name)] =
          bench::to_doubles((unit.shard().*of).slice(e.begin, e.begin + e.size));
  return values;
}

// The largest difference from the tensors of a golden file that have this prefix.
double difference(const std::map<std::string, std::vector<double>>& values, const Golden& golden,
                  const std::string& prefix) {
  double worst = 0;
  size_t found = 0;
  for (const auto& [name, tensor] : golden) {
    if (!name.starts_with(prefix)) continue;
    worst = std::max(worst, bench::max_error(values.at(name.substr(prefix.size())), tensor.values));
    ++found;
  }
  CHECK(found > 1);
  return worst;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TokenFile random_file(const std::string& path) {
  const RandomStream random(5, "corpus");
  std::vector<std::vector<int32_t>> documents(10, std::vector<int32_t>(13));
  int64_t at = 0;
  for (auto& document : documents)
    for (int32_t& token : document) token = static_cast<int32_t>(random.bits(at++) % 61);
  return token_file(path, documents, 61);
}

}  // namespace

TEST_CASE("five steps on adapters of each family have the losses, gradients and values of PEFT") {
  // llama_head: one of the adapters is on the output head.
  for (const std::string name : {"llama", "mistral", "qwen2", "qwen3", "gpt2", "llama_head",
                                 "gpt_oss_experts", "granitemoe_experts", "olmoe_experts"}) {
    CAPTURE(name);
    const std::string family = test::base_of_adapter(name), base = kGolden + "folders/" + family,
                      adapter = kGolden + "adapters/" + name;
    const Golden golden = test::load_golden("adapters/" + name + "/train");
    Config config = config_of(family);
    config.model = read_hf_config(base + "/config.json");
    std::vector<std::string> warnings;
    config.lora = selection_of(read_adapter_config(adapter + "/" + kAdapterConfigName, warnings), family);
    config.lora.dropout = 0;
    config.train.router_aux_loss = 0;

    const test::GoldenTensor &tokens = golden.at("tokens"), &targets = golden.at("targets");
    const int64_t length = tokens.shape[2];
    std::vector<std::vector<int32_t>> documents;
    for (size_t at = 0; at < tokens.values.size(); at += static_cast<size_t>(length)) {
      std::vector<int32_t>& document = documents.emplace_back();
      for (int64_t t = 0; t < length; ++t)
        document.push_back(static_cast<int32_t>(tokens.values[at + static_cast<size_t>(t)]));
      document.push_back(static_cast<int32_t>(targets.values[at + static_cast<size_t>(length) - 1]));
    }
    const TokenFile file = token_file("adapter_step_test.tok", documents, config.model.vocab);
    Run run(config, file);

    Arena tables("tables", Device::cpu());
    PublishedWeights weights(base, Model(config.model, tables), config.model.vocab);
    run.engine().initialize(
        values_read_by([&](const std::string& parameter, int64_t first, int64_t count, float* to) {
          const auto start = golden.find("start." + adapter_tensor_name(parameter));
          if (start != golden.end())
            std::copy_n(start->second.values.begin() + first, count, to);
          else if (parameter.find(".lora_") != std::string::npos)
            std::fill_n(to, count, 0.0f);
          else
            weights.read(parameter, first, count, to);
        }));
    for (int64_t step = 0; step < 5; ++step) {
      CAPTURE(step);
      const StepResult r = run.step(step);
      const size_t at = static_cast<size_t>(step);
      CHECK(loss_of(r) == doctest::Approx(golden.at("losses").values[at]).epsilon(1e-5));
      CHECK(r.grad_norm == doctest::Approx(golden.at("norms").values[at]).epsilon(1e-5));
      if (step == 0)
        CHECK(difference(trained(run.engine(), &OptimizerShard::g), golden, "grad.") <
              (config.model.experts > 0 ? 1e-4 : 1e-5));
    }
    CHECK(difference(trained(run.engine(), &OptimizerShard::p), golden, "end.") < 1e-4);
  }
}

TEST_CASE("dropout on adapters draws the same masks again when activations are recomputed") {
  const TokenFile file = random_file("adapter_step_test.tok");
  const auto hash = [&](double dropout, Recompute recompute, int64_t tile = 0) {
    Config config = config_of("llama");
    config.lora.dropout = dropout;
    config.train.recompute = recompute;
    config.train.tile = tile;
    Run run(config, file);
    run.engine().initialize();
    for (int64_t step = 0; step < 3; ++step) run.step(step);
    return run.hash();
  };
  const std::string kept = hash(0.3, Recompute::none);
  CHECK(hash(0.3, Recompute::full) == kept);
  CHECK(hash(0.3, Recompute::selective) == kept);
  CHECK(hash(0.3, Recompute::except_attention) == kept);
  CHECK(hash(0.3, Recompute::none, 1 << 20) == kept);  // one tile
  CHECK(hash(0.3, Recompute::none, 5) == hash(0.3, Recompute::full, 5));
  CHECK(kept != hash(0, Recompute::none));
}

TEST_CASE("a tile has the masks that its tokens have without tiles") {
  const TokenFile file = random_file("adapter_step_test.tok");
  const auto loss_after = [&](double dropout, int64_t tile) {
    Config config = config_of("llama");
    config.precision.compute = Precision::fp32;
    config.lora.dropout = dropout;
    config.train.tile = tile;
    Run run(config, file);
    run.engine().initialize();
    for (int64_t step = 0; step < 3; ++step) run.step(step);
    return loss_of(run.step(3));
  };
  const double whole = loss_after(0.3, 0);
  CHECK(loss_after(0.3, 5) == doctest::Approx(whole).epsilon(1e-6));
  CHECK(loss_after(0, 5) != doctest::Approx(whole).epsilon(1e-5));
}

TEST_CASE("every lane of every step has its own masks") {
  // One document in all lanes, and the same values in every step: only the masks can differ.
  std::vector<int32_t> document(13);
  for (size_t i = 0; i < document.size(); ++i) document[i] = static_cast<int32_t>(i);
  const TokenFile file =
      token_file("adapter_step_test.tok", std::vector<std::vector<int32_t>>(12, document), 61);
  const auto losses = [&](double dropout, int64_t lanes_at_once) {
    Config config = config_of("llama");
    config.lora.dropout = dropout;
    config.train.lane_size = 1;
    config.train.batch_size_per_device = lanes_at_once;
    Run run(config, file);
    std::vector<double> all;
    for (int64_t step = 0; step < 3; ++step) {
      run.engine().initialize(
          values_read_by([](const std::string& name, int64_t first, int64_t count, float* to) {
            const RandomStream random(1, name);
            for (int64_t i = 0; i < count; ++i) to[i] = 0.3f * random.normal(first + i);
          }));
      const StepResult r = run.step(step);
      all.insert(all.end(), r.lane_losses.begin(), r.lane_losses.end());
    }
    return all;
  };
  const auto distinct = [](const std::vector<double>& values) {
    return std::set<double>(values.begin(), values.end()).size();
  };
  CHECK(distinct(losses(0, 1)) == 1);
  CHECK(losses(0.2, 1).size() == 3 * 2);
  CHECK(distinct(losses(0.2, 1)) == 3 * 2);
  CHECK(losses(0.2, 2) == losses(0.2, 1));
}

TEST_CASE("a step on adapters multiplies by each frozen weight once forward and once backward") {
  const TokenFile file = random_file("adapter_step_test.tok");
  const auto products = [&](const Config& config) {
    Trace trace(0);
    Run run(config, file, {.trace = &trace});
    run.engine().initialize();
    run.step(0);
    return count(trace.spans_json(0, trace.span_count(), trace.start()), "\"gemm\"");
  };
  Config config = config_of("llama");
  config.train.batch_size_per_device = 2;
  config.train.lane_size = 2;
  // Of a block: q, k, v; o; gate, up; down. Each joined matrix has one product where an adapter has one per
  // layer.
  constexpr size_t kBlocks = 2, kLayers = 7, kJoined = 4;
  const size_t head = 2;  // logits and their gradient
  // Below the first adapters nothing is computed: the first block lacks dx of q, k and v, and of their a.
  const size_t frozen = kBlocks * 2 * kJoined - 1 + head;
  // Per layer y += u b, db and du; per joined matrix u, da and dx.
  CHECK(products(config) == frozen + kBlocks * 3 * (kLayers + kJoined) - 1);

  config.lora.targets = std::vector<std::string>{"v_proj"};
  config.lora.layers = {1};
  // No backward pass for block 0; of block 1, neither dx of q, k and v nor of a.
  CHECK(products(config) == kJoined + kJoined + kJoined - 1 + head + 5);

  Config full = config_of("llama");
  full.lora.rank = 0;
  full.train.batch_size_per_device = 2;
  full.train.lane_size = 2;
  CHECK(products(full) == kBlocks * 3 * kJoined + head + 1);
}

TEST_CASE("Llama-3-8B with adapters plans two bytes per frozen parameter and eighteen per trained one") {
  Config config = config_of("llama");
  config.model = {.family = "llama",
                  .layers = 32,
                  .hidden = 4096,
                  .heads = 32,
                  .kv_heads = 8,
                  .ffn = 14336,
                  .vocab = 128256,
                  .max_positions = 8192};
  config.lora.rank = 8;
  config.precision.compute = Precision::bf16;
  config.train.total_batch_size = 1;
  World world;
  const RunPlan plan = plan_run(set_up(config, 1), 0);
  CHECK(plan.trainable == 20971520);
  CHECK(plan.parameters - plan.trainable == 8030261248);
  const auto bytes = [&](const std::string& arena) { return test::planned_bytes(plan, arena); };
  CHECK(bytes("parameters") == 2 * plan.parameters);
  CHECK(bytes("optimizer") == 12 * plan.trainable);  // masters and two moments
  CHECK(bytes("gradients") >= 4 * plan.trainable);
  CHECK(bytes("gradients") < 4 * plan.trainable + 100'000);  // and the partial sums of their norm
}
