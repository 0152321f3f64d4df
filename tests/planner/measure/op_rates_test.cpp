#include <set>

#include "planner/measure/measured_machines.h"
#include "tests/test.h"
#include "train/step/training_runtime.h"

using namespace flatshard;

namespace {

RunSetup setup_of(const std::string& family, Precision compute, bool tied) {
  Config c;
  c.run.device = DeviceChoice::cpu;
  c.model = {.family = family,
             .layers = 3,
             .hidden = 64,
             .heads = 4,
             .kv_heads = family == "gpt2" || family == "phi3" ? 4 : 2,
             .ffn = 128,
             .vocab = 96,
             .tied = tied};
  c.data.seq_len = 32;
  c.data.packing = Packing::wrapped;
  c.train.steps = 1;
  c.train.total_batch_size = c.train.batch_size_per_device = 2;
  c.optimizer.lr = 1e-3;
  c.precision.compute = compute;
  return set_up(c, 1, {}, Purpose::plan);
}

// What a step does besides its work on elements.
const std::set<std::string_view> kShort{"fill",         "sum_partials",     "clip_coefficient",
                                        "init_param",   "check_targets",    "copy",
                                        "gather_lanes", "scale_by_targets", "cast"};

}  // namespace

TEST_CASE("the smaller model runs every op of the run's blocks, in the same dtype") {
  for (const char* family : {"llama", "gpt2", "qwen3", "gemma2", "olmo2", "phi3"})
    for (const Precision compute : {Precision::fp32, Precision::bf16}) {
      CAPTURE(family);
      CAPTURE(compute);
      const RunSetup setup = setup_of(family, compute, true);
      std::set<std::pair<std::string_view, DType>> timed;
      for (const TimedOp& op : time_ops(setup, 1e9)) {
        CHECK(op.seconds > 0);
        timed.insert({op.op.name, op.op.dtype});
      }
      Recording recording;
      plan_run(setup, 0, &recording);
      for (const OpCall& op : recording.ops()) {
        if (kShort.contains(op.name)) continue;
        CAPTURE(op.name);
        CHECK(timed.contains({op.name, op.dtype}));
      }
    }
}

TEST_CASE("products are timed with many rows and with few") {
  RunSetup setup = setup_of("llama", Precision::fp32, true);
  std::set<int64_t> rows;
  for (const TimedOp& op : time_ops(setup, 1e9))
    if (op.op.name == "gemm" && op.op.shape[1] == setup.model.vocab) rows.insert(op.op.shape[0]);
  CHECK(rows.contains(64));
  CHECK(rows.contains(512));
}

TEST_CASE("products of adapters are timed, and the decoding of 4-bit weights") {
  RunSetup setup = setup_of("llama", Precision::fp32, true);
  constexpr int64_t kRank = 5;
  setup.model.adapters = {{"model.layers.0.self_attn.q_proj", {.rank = kRank, .scale = 1}},
                          {"model.layers.2.mlp.down_proj", {.rank = kRank, .scale = 1}}};
  setup.model.quantized = {{"model.layers.0.mlp.up_proj", {.nested = true}}};
  std::set<int64_t> depths, widths;
  bool decodes = false;
  for (const TimedOp& op : time_ops(setup, 1e9)) {
    decodes = decodes || op.op.name == "dequantize_four_bit";
    if (op.op.name != "gemm") continue;
    depths.insert(op.op.shape[2]);
    widths.insert(op.op.shape[0]);
  }
  CHECK(decodes);
  CHECK(depths.contains(kRank));
  CHECK(widths.contains(kRank));
}

TEST_CASE("the smaller model keeps heads and proportions, and is no larger than the run's") {
  ModelConfig model{.family = "llama",
                    .layers = 32,
                    .hidden = 4096,
                    .heads = 32,
                    .kv_heads = 8,
                    .ffn = 14336,
                    .vocab = 128256,
                    .max_positions = 8192};
  model = resolved(model);
  const ModelConfig small = smaller_model(model, 512);
  CHECK(small.layers == 2);
  CHECK(small.head_dim == 128);
  CHECK(small.heads == 4);
  CHECK(small.kv_heads == 1);
  CHECK(small.hidden == 512);
  CHECK(small.ffn == 1792);
  CHECK(small.vocab == 2048);
  model.hidden = 96, model.heads = 3, model.kv_heads = 3, model.head_dim = 32, model.ffn = 40,
  model.vocab = 50;
  const ModelConfig same = smaller_model(model, 512);
  CHECK(same.hidden == 96);
  CHECK(same.heads == 3);
  CHECK(same.ffn == 40);
  CHECK(same.vocab == 50);
}
