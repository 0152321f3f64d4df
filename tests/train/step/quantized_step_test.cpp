// Training of adapters on 4-bit weights. tests/comm/rank_matrix.cpp compares the bits on several ranks.

#include <map>

#include "bench/case.h"
#include "hub/initial_values.h"
#include "hub/published_weights.h"
#include "kernels/four_bit.h"
#include "runtime/memory.h"
#include "runtime/rng.h"
#include "tests/test.h"
#include "tests/train/step/planned_bytes.h"
#include "train/step/training_runtime.h"
#include "train/step/weights.h"

using namespace flatshard;

namespace {

constexpr int64_t kSteps = 3;

Config config_of(const std::string& family) {
  Config c;
  c.run.seed = 3;
  c.model = {.family = family, .layers = 2, .hidden = 48, .heads = 2, .ffn = 80, .vocab = 61};
  c.lora.rank = 4;
  c.quant.base = FourBitKind::nf4;
  c.data.seq_len = 13;
  c.train.steps = kSteps;
  c.train.total_batch_size = 2;
  c.optimizer.lr = 1e-2;
  return c;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> adapters;
  bool operator==(const Trained&) const = default;
};

// Trains on random tokens, from the initial values that make(setup) returns.
template <class Make>
Trained train(const Config& config, Make&& make) {
  World world;
  const RunSetup setup = set_up(config, 1);
  const std::string path = "quantized_step_test.tok";
  TokenWriter writer(path, 61);
  const RandomStream random(5, "corpus");
  std::vector<int32_t> tokens(300);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(random.bits(static_cast<int64_t>(i)) % 61);
  writer.add_document(tokens);
  writer.finish();
  const TokenFile file(path);
  Data data(file, {.seq_len = setup.seq_len(),
                   .lane_sequences = setup.batching.lane_sequences,
                   .total_sequences = setup.batching.total_sequences});
  TrainingRuntime runtime(setup, world);
  Engine& engine = runtime.engine();
  engine.initialize(make(setup));
  Trained trained;
  for (int64_t step = 0; step < kSteps; ++step) {
    const StepResult r = engine.step(data, {.data_step = step,
                                            .update = step + 1,
                                            .lr = 1e-2,
                                            .loss_scale = 1,
                                            .targets = data.target_count(step)});
    trained.losses.insert(trained.losses.end(), r.lane_losses.begin(), r.lane_losses.end());
  }
  for (const ShardedUnit& unit : engine.units())
    for (const auto& [param, first, values] : unit.trainable().values(unit.shard().p))
      trained.adapters[unit.params()[param].name] = bench::to_doubles(values);
  return trained;
}

Config llama2_70b() {
  Config config = config_of("llama");
  config.model = {.family = "llama",
                  .layers = 80,
                  .hidden = 8192,
                  .heads = 64,
                  .kv_heads = 8,
                  .ffn = 28672,
                  .vocab = 32000,
                  .max_positions = 4096};
  config.lora.rank = 8;
  config.quant.nested = true;
  return config;
}

InitialValues with_trained_b(const RunSetup& setup) {
  const InitialValues random = random_values(static_cast<uint64_t>(setup.config.run.seed));
  return [random](Stream& stream, const ParamSpec& spec, int64_t first, const Tensor& y) {
    ParamSpec other = spec;
    if (spec.role == ParamRole::adapter) other.init = Init::normal(0.1f);
    random(stream, other, first, y);
  };
}

// The weights of the quantized model, dequantized.
InitialValues dequantized(const RunSetup& setup, const std::map<std::string, FourBitFormat>& quantized) {
  const InitialValues values = with_trained_b(setup);
  return [=, compute = setup.compute](Stream& stream, const ParamSpec& spec, int64_t first, const Tensor& y) {
    const auto found = quantized.find(spec.name.substr(0, spec.name.rfind('.')));
    if (spec.role != ParamRole::weight || found == quantized.end()) return values(stream, spec, first, y);
    const int64_t n = spec.shape.size(), block = found->second.block, blocks = block_count(n, block);
    Memory memory(Device::cpu(), 8 * n + 16 * blocks + 8192);
    auto* at = static_cast<char*>(memory.data());
    const auto alloc = [&](DType dtype, int64_t size) {
      const Tensor t{at, dtype, {size}, Device::cpu()};
      at += (t.bytes() + 63) / 64 * 64;
      return t;
    };
    const Tensor x = alloc(DType::f32, n), codes = alloc(DType::u8, code_bytes(n)),
                 absmax = alloc(DType::f32, blocks), table = alloc(DType::f32, 16);
    values(stream, spec, 0, x);
    quantize_four_bit(stream,
                      {.codes = codes, .absmax = absmax, .x = x, .kind = found->second.kind, .block = block});
    stream.run("table", [=] {
      const FourBitTable& entries = four_bit_table(found->second.kind);
      std::copy(entries.begin(), entries.end(), table.as<float>());
    });
    dequantize_four_bit(
        stream, {.y = y,
                 .w = {.codes = codes, .absmax = absmax, .table = table, .block = block, .shape = {1, n}},
                 .first = first});
    stream.sync();
  };
}

}  // namespace

TEST_CASE("adapters on 4-bit weights train as on the dequantized weights, bit for bit") {
  for (const Precision precision : {Precision::bf16, Precision::fp32})
    for (const FourBitKind base : {FourBitKind::nf4, FourBitKind::fp4})
      for (const Recompute recompute : {Recompute::none, Recompute::full, Recompute::selective}) {
        CAPTURE(precision);
        CAPTURE(base);
        CAPTURE(recompute);
        Config config = config_of("qwen2");
        config.precision.compute = precision;
        config.quant.base = base;
        config.train.recompute = recompute;
        config.train.tile = recompute == Recompute::full ? 5 : 0;
        const auto quantized = set_up(config, 1).model.quantized;
        CHECK(quantized.size() == 14);
        const Trained four_bit = train(config, [&](const RunSetup& setup) {
          return quantized_values(with_trained_b(setup), setup.model);
        });
        config.quant = {};
        const Trained dense =
            train(config, [&](const RunSetup& setup) { return dequantized(setup, quantized); });
        CHECK(four_bit.losses == dense.losses);
        CHECK(four_bit.adapters == dense.adapters);
        const Trained unquantized = train(config, with_trained_b);
        CHECK(unquantized.losses != dense.losses);
      }
}

TEST_CASE("Llama-2-70B on two GPUs takes less than PEFT's guide says, with and without offload") {
  for (const bool offload : {true, false}) {
    CAPTURE(offload);
    Config config = llama2_70b();
    config.run.device = DeviceChoice::cuda;
    config.data.seq_len = 2048;
    config.train.total_batch_size = 4;
    config.train.batch_size_per_device = 2;
    config.train.recompute = Recompute::full;
    config.checkpoint.save_every = "100";
    config.parallel.offload = offload;
    const RunPlan plan = plan_run(set_up(config, 2, {}, Purpose::plan), 0);
    const int64_t staging = test::planned_bytes(plan, "staging");
    const int64_t host = staging + test::planned_bytes(plan, "transport") + test::planned_bytes(plan, "host");
    CHECK(plan.memory_bytes - host < (offload ? 19'600'000'000 : 35'600'000'000));
    CHECK(host < (offload ? 53'500'000'000 : 2'000'000'000));  // the guide: 107 GB for both ranks
    CHECK(staging < 1'500'000'000);                            // a checkpoint contains no 4-bit weights
  }
}

TEST_CASE("8-bit scales and another dtype for products change the losses a little") {
  const auto losses = [](auto&& change) {
    Config config = config_of("gpt2");
    config.precision.compute = Precision::fp32;
    change(config);
    return train(config,
                 [&](const RunSetup& setup) { return quantized_values(with_trained_b(setup), setup.model); })
        .losses;
  };
  const std::vector<double> plain = losses([](Config&) {}),
                            nested = losses([](Config&c) { c.quant.nested = true; }),
                            rounded = losses([](Config&c) { c.quant.compute = Precision::bf16; });
  CHECK(nested != plain);
  CHECK(rounded != plain);
  for (size_t i = 0; i < plain.size(); ++i) {
    CHECK(nested[i] == doctest::Approx(plain[i]).epsilon(1e-3));
    CHECK(rounded[i] == doctest::Approx(plain[i]).epsilon(1e-3));
  }
}

TEST_CASE("quantized weights have no masters, moments or gradients, and a block's parts travel as bytes") {
  Config config = llama2_70b();
  config.train.total_batch_size = 2;
  const RunPlan plan = plan_run(set_up(config, 2), 0);
  CHECK(plan.parameters - plan.trainable == 68976648192);
  CHECK(plan.trainable == 103546880);
  const auto bytes = [&](const std::string& arena) { return test::planned_bytes(plan, arena); };
  // Codes of half a byte; scales of a byte for every 64 codes, and of four bytes for every 256 of these
  // scales; two bytes for all other parameters; and the tables of 560 weights.
  const int64_t codes = 34225520640, scales = 1086259200, others = 525606912,
                tables = 560 * (16 + 256 + 1) * 4;
  const int64_t exact = (codes + scales + tables + 2 * (others + plan.trainable)) / 2;
  CHECK(bytes("parameters") >= exact);
  CHECK(bytes("parameters") < exact + exact / 1000);
  CHECK(bytes("optimizer") < 12 * plan.trainable / 2 + 4096 * 12 * 82);
  CHECK(bytes("gradients") < 4 * plan.trainable);
}

TEST_CASE("quant.upcast_norms keeps frozen norms in fp32, but not trained ones") {
  Config config = config_of("gpt2");
  config.quant.fp32_norms = true;
  config.lora.save_modules = {"h.1.ln_2"};
  World world;
  const RunSetup setup = set_up(config, 1);
  TrainingRuntime runtime(setup, world);
  int64_t kept = 0, trained = 0;
  for (const ShardedUnit& unit : runtime.engine().units())
    for (const ParamSpec& spec : unit.params().specs()) {
      if (spec.role != ParamRole::norm) continue;
      CHECK(spec.trainable == (spec.name.find("h.1.ln_2") != std::string::npos));
      CHECK(spec.dtype.has_value() != spec.trainable);
      (spec.trainable ? trained : kept) += 1;
    }
  CHECK(trained == 2);
  CHECK(kept == 2 * (2 * 2 + 1) - 2);
  const auto losses = [&](bool fp32) {
    config.quant.fp32_norms = fp32;
    return train(config,
                 [](const RunSetup& s) -> InitialValues {
                   const InitialValues values = quantized_values(with_trained_b(s), s.model);
                   // Values that bf16 cannot hold.
                   return [values](Stream& stream, const ParamSpec& spec, int64_t first, const Tensor& y) {
                     ParamSpec other = spec;
                     if (spec.role == ParamRole::norm) other.init = Init::constant(1.003f);
                     values(stream, other, first, y);
                   };
                 })
        .losses;
  };
  CHECK(losses(true) != losses(false));
}

TEST_CASE("products with 4-bit weights in another dtype than the rest are announced") {
  Config config = config_of("llama");
  config.precision.compute = Precision::fp16;
  CHECK(set_up(config, 1).warnings.empty());
  config.quant.compute = Precision::fp16;
  CHECK(set_up(config, 1).warnings.empty());
  config.quant.compute = Precision::bf16;
  CHECK(set_up(config, 1).warnings ==
        std::vector<std::string>{
            "quant.compute = \"bf16\", but precision.compute = \"fp16\": activations are converted around "
            "every product with a 4-bit weight"});
}

TEST_CASE("4-bit weights need adapters, and the keys of quant need quant.base") {
  const auto error = [](auto&& change) {
    Config config = config_of("llama");
    change(config);
    return test::error_of([&] { set_up(config, 1); });
  };
  CHECK(error([](Config& c) { c.lora.rank = 0; }) ==
        "quant.base = \"nf4\", but lora.rank = 0: 4-bit weights cannot be trained; set lora.rank to train "
        "adapters on them");
  CHECK(error([](Config& c) {
          c.quant.base = {};
          c.quant.nested = true;
        }) ==
        "quant.base = \"none\", so that the other keys of quant have no effect: set it to \"nf4\" or "
        "\"fp4\", or "
        "remove them");
}
