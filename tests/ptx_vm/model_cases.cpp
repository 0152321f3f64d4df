#include "tests/ptx_vm/model_cases.h"

#include <functional>
#include <utility>

#include "kernels/gemm.h"
#include "model/lora.h"
#include "model/quantization.h"
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

// What is trained, all parameters or adapters, and with whose products.
struct Training {
  const char* name;
  LoraConfig lora{};
  QuantConfig quant{};
  ProductKernels products = ProductKernels::cublaslt;
};

ModelConfig with_adapters(const ModelConfig& config, const Training& training) {
  ModelConfig model = resolved(config);
  if (training.lora.rank == 0) return model;
  Arena planning("model", Device::cpu());
  model.adapters = choose_adapters(training.lora, Model(model, planning)).adapters;
  if (training.quant.base)
    model.quantized = choose_quantized(training.quant, training.lora, Model(model, planning)).weights;
  return model;
}

ModelCounts count_block(const ModelConfig& config, const Training& training, bool is_forward) {
  BlockRun run(with_adapters(config, training), kTokens);
  const BlockBytes least = training.lora.rank > 0 ? BlockBytes{} : least_bytes(resolved(config), kTokens);
  Counts forward = run.count_forward();
  if (is_forward) return {std::move(forward), least.forward};
  return {run.count_backward(), least.backward};
}

ModelCounts count_step(const ModelConfig& config, const Training& training) {
  StepRun run(config, kTokens, training.lora, training.quant);
  return {run.count(), training.lora.rank > 0 ? 0 : run.least_bytes()};
}

void add_cases(std::vector<ModelCase>& cases, const SmallModel& model, const Training& training) {
  const std::string shape = str(' ', model.name, ' ', kTokens, " tokens bf16", training.name);
  const ModelConfig& config = model.config;
  const auto add = [&](const std::string& name, std::function<ModelCounts()> count) {
    cases.push_back({name + shape, [count = std::move(count), products = training.products] {
                       use_product_kernels(products);
                       ModelCounts counts = count();
                       use_product_kernels(ProductKernels::cublaslt);
                       if (products == ProductKernels::own) counts.least_bytes = 0;  // it excludes products
                       return counts;
                     }});
  };
  add("model block_forward", [=] { return count_block(config, training, true); });
  add("model block_backward", [=] { return count_block(config, training, false); });
  add("model step", [=] { return count_step(config, training); });
}

}  // namespace

std::vector<ModelCase> model_cases() {
  std::vector<ModelCase> cases;
  const std::vector<SmallModel> models = small_models();
  for (const SmallModel& model : models) add_cases(cases, model, {""});
  for (const SmallModel& model : models)
    add_cases(cases, model, {.name = " own products", .products = ProductKernels::own});
  const LoraConfig lora{.rank = 16};
  add_cases(cases, models.back(), {" lora", lora});
  add_cases(cases, models.back(), {" qlora", lora, {.base = FourBitKind::nf4}});
  return cases;
}

}  // namespace flatshard::ptx_vm
