// The recording of a planned step against a step that runs: the same work on every stream, in the same order.

#include <map>

#include "runtime/recording.h"
#include "runtime/rng.h"
#include "runtime/trace.h"
#include "tests/test.h"
#include "tests/train/step/planned_bytes.h"
#include "train/step/training_runtime.h"

using namespace flatshard;

namespace {

constexpr int64_t kVocab = 61, kLength = 12;

// Documents end where rows end, as the plan of a step assumes with `wrapped`.
const TokenFile& corpus() {
  static const std::string path = "plan_step_test.tok";
  static const TokenFile file = [] {
    TokenWriter writer(path, kVocab);
    const RandomStream random(5, "corpus");
    std::vector<int32_t> tokens(1200);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(random.bits(static_cast<int64_t>(i)) % kVocab);
    writer.add_document(tokens);
    writer.finish();
    return TokenFile(path);
  }();
  return file;
}

Config small_config(const std::string& family = "llama") {
  Config c;
  c.run.seed = 3;
  c.model = {.family = family, .layers = 3, .hidden = 20, .heads = 2, .ffn = 28, .vocab = kVocab};
  c.data.train = "plan_step_test.tok";
  c.data.seq_len = kLength;
  c.data.packing = Packing::wrapped;
  c.train.steps = 4;
  c.train.total_batch_size = 8;
  c.train.batch_size_per_device = 2;
  c.optimizer.lr = 1e-2;
  c.precision.compute = Precision::fp32;
  return c;
}

// The names of the work on each stream, in order.
using Names = std::map<std::string, std::vector<std::string>>;

// The spans of the second step, those that contain others in the order in which they end.
Names traced_names(const RunSetup& setup) {
  World world;
  const Data data(corpus(), {.seq_len = kLength,
                             .lane_sequences = setup.batching.lane_sequences,
                             .total_sequences = setup.batching.total_sequences,
                             .packing = {.packing = setup.config.data.packing}});
  Trace trace;
  trace.set_recording(false);
  TrainingRuntime runtime(setup, world, {.trace = &trace});
  runtime.engine().initialize();
  for (int step = 0; step < 2; ++step) {
    trace.set_recording(step == 1);
    runtime.engine().step(data, {.data_step = step,
                                 .update = step + 1,
                                 .lr = 1e-2,
                                 .loss_scale = setup.compute == DType::f16 ? 1024.0 : 1.0,
                                 .targets = data.target_count(step)});
  }
  Names names;
  trace.each_span(
      [&](const std::string& row, const std::string& what, auto, auto) { names[row].push_back(what); });
  return names;
}

Names recorded_names(const Recording& recording) {
  Names names;
  std::map<int, std::vector<std::string>> open;
  for (const Recording::Item& item : recording.items()) {
    auto& row = names[recording.streams()[static_cast<size_t>(item.stream)].name];
    const auto index = static_cast<size_t>(item.index);
    if (item.kind == Recording::Kind::op) row.emplace_back(recording.ops()[index].name);
    if (item.kind == Recording::Kind::begin) open[item.stream].push_back(recording.scopes()[index]);
    if (item.kind == Recording::Kind::end) {
      row.push_back(open[item.stream].back());
      open[item.stream].pop_back();
    }
  }
  std::erase_if(names, [](const auto& row) { return row.second.empty(); });
  return names;
}

Recording record(const RunSetup& setup) {
  Recording recording;
  plan_run(setup, 0, &recording);
  return recording;
}

void check_same_names(const Config& config) {
  const RunSetup setup = set_up(config, 1);
  const Names traced = traced_names(setup), recorded = recorded_names(record(setup));
  REQUIRE(traced.size() == recorded.size());
  for (const auto& [row, names] : traced) {
    CAPTURE(row);
    REQUIRE(recorded.contains(row));
    CHECK(names == recorded.at(row));
  }
}

}  // namespace

TEST_CASE("a recorded step has the work of a step that runs, in its order") {
  for (const char* family : {"llama", "gpt2", "qwen3"})
    for (const Precision compute : {Precision::fp32, Precision::bf16, Precision::fp16}) {
      CAPTURE(family);
      CAPTURE(compute);
      Config config = small_config(family);
      config.precision.compute = compute;
      check_same_names(config);
    }
}

TEST_CASE("a recorded step has every kind of work that settings add") {
  const auto check_with = [](const char* name, auto&& change) {
    CAPTURE(name);
    Config config = small_config();
    change(config);
    check_same_names(config);
  };
  check_with("recomputation", [](Config& c) { c.train.recompute = Recompute::full; });
  check_with("selective recomputation", [](Config& c) { c.train.recompute = Recompute::selective; });
  check_with("tiles", [](Config& c) { c.train.tile = 5; });
  check_with("activations in host memory", [](Config& c) {
    c.train.recompute = Recompute::except_attention;
    c.train.offload_activations = true;
  });
  check_with("short lanes", [](Config& c) { c.train.lane_size = 1; });
  check_with("head chunks", [](Config& c) { c.train.head_chunk = 5; });
  check_with("adapters", [](Config& c) {
    c.lora.rank = 2;
    c.trainable = {"*"};
  });
  check_with("4 bits", [](Config& c) {
    c.model.hidden = 64;
    c.lora.rank = 2;
    c.trainable = {"*"};
    c.quant.base = FourBitKind::nf4;
  });
  for (const OptimizerKind& kind : optimizer_kinds())
    check_with(kind.name, [&](Config& c) { c.optimizer.kind.row = &kind; });
  check_with("offload", [](Config& c) { c.parallel.offload = true; });
}

TEST_CASE("the products of a recorded step add up to the counted FLOPs per token") {
  for (const char* family : {"llama", "gpt2", "qwen3"}) {
    CAPTURE(family);
    const RunSetup setup = set_up(small_config(family), 1);
    Recording recording;
    const RunPlan plan = plan_run(setup, 0, &recording);
    double products = 0;
    for (const Recording::Item& item : recording.items()) {
      if (item.kind != Recording::Kind::op) continue;
      const OpCall& op = recording.ops()[static_cast<size_t>(item.index)];
      // The backward pass of attention computes the scores again; counted FLOPs have no recomputation.
      constexpr double kCountedOfBackward = 2.0 / 2.5;
      if (op.name == "gemm" || op.name == "attention_forward") products += op.flops;
      if (op.name == "attention_backward") products += kCountedOfBackward * op.flops;
    }
    const auto tokens = static_cast<double>(setup.batching.total_sequences * kLength);
    CHECK(products / tokens == doctest::Approx(plan.flops.causal).epsilon(1e-12));
  }
}

TEST_CASE("a recording has the update of every unit, and the exchanges of all ranks") {
  Config config = small_config();
  config.train.total_batch_size = 16;
  const RunSetup setup = set_up(config, 4);
  Recording recording;
  const RunPlan plan = plan_run(setup, 1, &recording);
  int updates = 0;
  std::map<std::string, int> calls;
  for (const Recording::Item& item : recording.items()) {
    const auto index = static_cast<size_t>(item.index);
    if (item.kind == Recording::Kind::op && recording.ops()[index].name == "adamw") ++updates;
    if (item.kind == Recording::Kind::exchange) {
      const ExchangeCall& call = recording.exchanges()[index];
      CHECK(call.ranks == 4);
      ++calls[call.verb];
    }
  }
  CHECK(updates == plan.units.all.units);
  for (const auto& [verb, count] : calls) {
    const std::string name = verb;
    const int64_t planned = sum_of(plan.schedule, [&](const Collective& c) { return c.verb == name; }).calls;
    CHECK(count == planned);
  }
  CHECK(calls.contains("all_gather"));
  CHECK(calls.contains("all_to_all"));
}

TEST_CASE("selective recomputation takes less memory for no further product or attention") {
  for (const char* family : {"llama", "gpt2", "qwen3"}) {
    CAPTURE(family);
    Config config = small_config(family);
    config.train.batch_size_per_device = 1;
    const auto with = [&](Recompute recompute) {
      config.train.recompute = recompute;
      const RunSetup setup = set_up(config, 1);
      std::map<std::string_view, int> calls;
      const Recording recording = record(setup);
      for (const Recording::Item& item : recording.items())
        if (item.kind == Recording::Kind::op) ++calls[recording.ops()[static_cast<size_t>(item.index)].name];
      return std::pair(plan_run(setup, 0).memory_bytes, calls);
    };
    auto [all, calls] = with(Recompute::none);
    auto [some, selective_calls] = with(Recompute::selective);
    auto [least, full_calls] = with(Recompute::full);
    CHECK(some < all);
    CHECK(least < some);
    for (const char* op : {"gemm", "attention_forward"}) {
      CHECK(selective_calls[op] == calls[op]);
      CHECK(full_calls[op] > calls[op]);
    }
    const char* const activation = std::string_view(family) == "gpt2" ? "gelu_forward" : "swiglu_forward";
    CHECK(selective_calls[activation] == 2 * calls[activation]);
  }
}

TEST_CASE(
    "with tiles and activations in host memory a longer sequence takes no more for a wider or deeper model") {
  // Bytes on the device and on the host that twice the length adds.
  const auto added = [](int64_t layers, int64_t ffn, bool all) {
    Config config = small_config();
    config.model.layers = layers;
    config.model.ffn = ffn;
    config.train.head_chunk = 16;
    config.train.recompute = Recompute::full;
    config.train.batch_size_per_device = 1;
    if (all) {
      config.train.tile = 64;
      config.train.recompute = Recompute::except_attention;
      config.train.offload_activations = true;
    }
    const auto bytes = [&](int64_t length) {
      config.data.seq_len = length;
      const RunPlan plan = plan_run(set_up(config, 1), 0);
      const int64_t stored = test::planned_bytes(plan, "stored");
      return std::pair(plan.memory_bytes - stored, stored);
    };
    const auto [device, host] = bytes(2048);
    const auto [device_after, host_after] = bytes(4096);
    return std::pair(device_after - device, host_after - host);
  };
  const auto [device, host] = added(3, 28, true);
  // Inputs of blocks and of the head; attention's output, and the lse of two heads.
  CHECK(host == 2048 * (4 * 20 + 3 * (20 + 2)) * 4);
  CHECK(added(3, 280, true).first == device);
  CHECK(added(9, 28, true).first == device);
  CHECK(added(9, 28, true).second == 2048 * (10 * 20 + 9 * (20 + 2)) * 4);
  CHECK(added(3, 280, false).first > added(3, 28, false).first + 2048 * 5 * (280 - 28) * 4);
  CHECK(added(9, 28, false).first == added(3, 28, false).first + 2048 * 6 * 20 * 4);
}
