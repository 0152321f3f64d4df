#include "tests/small_model.h"

#include <filesystem>
#include <fstream>

#include "runtime/rng.h"

namespace flatshard::test {

ModelConfig small_model(const std::string& family, int64_t vocab) {
  ModelConfig c{.family = family,
                .layers = 2,
                .hidden = 16,
                .heads = 4,
                .ffn = 24,
                .vocab = vocab,
                .max_positions = 64};
  if (family != "gpt2") c.kv_heads = 2;
  if (family == "mistral") c.window = 5;
  if (family == "qwen3") c.head_dim = 6;
  if (family == "gemma2") {  // caps of the size of the values that they bound
    c.window = 5;
    c.attention_softcap = 0.5;
    c.logit_softcap = 0.75;
  }
  if (family == "gemma3") {
    c.window = 5;
    c.full_attention_blocks = {1};
    c.window_rope_theta = 100;
  }
  if (family == "granite" || family == "granitemoe") {
    c.embedding_multiplier = 3;
    c.attention_multiplier = 0.3;
    c.residual_multiplier = 0.4;
    c.logit_divisor = 2.5;
  }
  if (family == "glm4") c.head_dim = 12;
  if (family == "smollm3") c.no_rope_every = 2;
  if (flatshard::family(family).experts) {
    c.ffn = 32;
    c.experts = 5;
    c.experts_per_token = 2;
    if (family == "qwen3_moe") c.dense_blocks = {0};
    if (family == "qwen2_moe") c.shared_ffn = 24;
    if (family == "gpt_oss") c.window = 7;
    if (family == "glm4_moe") {
      c.dense_blocks = {0};
      c.experts = 6;
      c.expert_groups = 3;
      c.top_groups = 2;
      c.routed_scale = 1.5;
      c.shared_ffn = 32;
      c.qkv_bias = c.qk_norm = true;
    }
  }
  if (flatshard::family(family).connector)
    c.vision =
        VisionConfig{.layers = 2,
                     .hidden = 24,
                     .heads = 2,
                     .ffn = 40,
                     .patch_size = 2,
                     .image_size = 12,
                     .image_token = 3,
                     .perceiver = {.latents = 3, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 6}};
  if (flatshard::family(family).rope_axes) {
    c.heads = 2;
    c.kv_heads = 1;
    c.rope_sections = {1, 1, 2};
    c.vision->ffn = 48;
    c.vision->image_size = 0;
    c.vision->repeats = 2;
    if (family == "qwen2_5_vl") {
      c.vision->window = 2;
      c.vision->full_attention_blocks = {1};
    }
  }
  return resolved(c);
}

void fill_random(const ResidentModel& model, float deviation) {
  for (size_t u = 0; u < model.parameters().size(); ++u)
    for (size_t i = 0; i < model.parameters()[u].size(); ++i) {
      const ParamSpec& spec = model.model().param_lists()[u].specs()[i];
      const RandomStream random(7, spec.name);
      const float mean = spec.init.kind == Init::Kind::constant ? spec.init.value : 0.0f;
      const Tensor& to = model.parameters()[u][i];
      visit_float(to.dtype, [&]<class T>() {
        T* values = to.as<T>();
        for (int64_t j = 0; j < spec.shape.size(); ++j) values[j] = T(mean + deviation * random.normal(j));
      });
    }
}

void write_model_folder(const std::string& folder, const ResidentModel& model) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << hf_config_json(model.model().config(), model.dtype());
  const SafetensorsLayout layout(weight_specs(model.model(), model.dtype()));
  SafetensorsWriter writer(folder + "/model.safetensors", layout, true);
  size_t index = 0;
  for (const std::vector<Tensor>& unit : model.parameters())
    for (const Tensor& tensor : unit) writer.write(index++, 0, tensor.data, tensor.size());
  writer.finish();
}

}  // namespace flatshard::test
