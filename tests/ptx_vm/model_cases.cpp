#include "tests/ptx_vm/model_cases.h"

#include "tests/ptx_vm/block_run.h"
#include "tests/ptx_vm/step_run.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int64_t kTokens = 256;

struct SmallModel {
  const char* name;  // with the factor by which it is narrower
  ModelConfig config;
};

std::vector<SmallModel> small_models() {
  std::vector<SmallModel> models{
      {"qwen2.5-1.5b/3",  // but both key heads, whose biases are then a multiple of 256, as in the model
       {.family = "qwen2", .hidden = 512, .heads = 4, .kv_heads = 2, .ffn = 2944, .tied = true}},
      {"qwen3-1.7b/8",
       {.family = "qwen3", .hidden = 256, .heads = 2, .kv_heads = 1, .ffn = 768, .tied = true}},
      {"llama-3-8b/8",
       {.family = "llama", .hidden = 512, .heads = 4, .kv_heads = 1, .ffn = 1792, .tied = false}}};
  for (auto& [name, config] : models) {
    config.layers = 1;
    config.head_dim = 128;
    config.vocab = 512;
    config.max_positions = kTokens;
  }
  return models;
}

ModelCounts count_block(const ModelConfig& config, bool is_forward) {
  BlockRun run(resolved(config), kTokens);
  const BlockBytes least = least_bytes(resolved(config), kTokens);
  Counts forward = run.count_forward();
  if (is_forward) return {std::move(forward), least.forward};
  return {run.count_backward(), least.backward};
}

ModelCounts count_step(const ModelConfig& config) {
  StepRun run(config, kTokens);
  return {run.count(), run.least_bytes()};
}

}  // namespace

std::vector<ModelCase> model_cases() {
  std::vector<ModelCase> cases;
  for (const auto& [name, config] : small_models()) {
    const std::string shape = str(' ', name, ' ', kTokens, " tokens bf16");
    cases.push_back({"model block_forward" + shape, [config = config] { return count_block(config, true); }});
    cases.push_back(
        {"model block_backward" + shape, [config = config] { return count_block(config, false); }});
    cases.push_back({"model step" + shape, [config = config] { return count_step(config); }});
  }
  return cases;
}

}  // namespace flatshard::ptx_vm
