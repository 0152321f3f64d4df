#include "train/config/published_shapes.h"

#include <algorithm>
#include <set>

#include "runtime/check.h"

namespace flatshard {

const std::vector<PublishedShape>& published_shapes() {
  static const std::vector<PublishedShape> shapes{
      {"gemma-2-2b", "google/gemma-2-2b", "gemma2", 26, 2304, 8, 4, 256, 9216, 256000, 8192, true},
      {"gemma-2-9b", "google/gemma-2-9b", "gemma2", 42, 3584, 16, 8, 256, 14336, 256000, 8192, true},
      {"gemma-2-27b", "google/gemma-2-27b", "gemma2", 46, 4608, 32, 16, 128, 36864, 256000, 8192, true},
      {"granite-3.0-1b-a400m", "ibm-granite/granite-3.0-1b-a400m-base", "granitemoe", 24, 1024, 16, 8, 64,
       512, 49155, 4096, true, 32, 8},
      {"gpt-oss-20b", "openai/gpt-oss-20b", "gpt_oss", 24, 2880, 64, 8, 64, 2880, 201088, 131072, false, 32,
       4},
      {"gpt2-124m", "openai-community/gpt2", "gpt2", 12, 768, 12, 12, 64, 3072, 50257, 1024, true},
      {"gpt2-1.5b", "openai-community/gpt2-xl", "gpt2", 48, 1600, 25, 25, 64, 6400, 50257, 1024, true},
      {"llama-2-7b", "meta-llama/Llama-2-7b-hf", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096},
      {"llama-2-13b", "meta-llama/Llama-2-13b-hf", "llama", 40, 5120, 40, 40, 128, 13824, 32000, 4096},
      {"llama-2-70b", "meta-llama/Llama-2-70b-hf", "llama", 80, 8192, 64, 8, 128, 28672, 32000, 4096},
      {"llama-3.1-8b", "meta-llama/Llama-3.1-8B", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072},
      {"llama-3.1-70b", "meta-llama/Llama-3.1-70B", "llama", 80, 8192, 64, 8, 128, 28672, 128256, 131072},
      {"llama-3.1-405b", "meta-llama/Llama-3.1-405B", "llama", 126, 16384, 128, 8, 128, 53248, 128256,
       131072},
      {"llama-3.2-1b", "meta-llama/Llama-3.2-1B", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true},
      {"llama-3.2-3b", "meta-llama/Llama-3.2-3B", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, true},
      {"mistral-7b", "mistralai/Mistral-7B-v0.1", "mistral", 32, 4096, 32, 8, 128, 14336, 32000, 32768},
      {"mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", "mixtral", 32, 4096, 32, 8, 128, 14336, 32000, 32768,
       false, 8, 2},
      {"olmoe-1b-7b", "allenai/OLMoE-1B-7B-0924", "olmoe", 16, 2048, 16, 16, 128, 1024, 50304, 4096, false,
       64, 8},
      {"phi-4", "microsoft/phi-4", "phi3", 40, 5120, 40, 10, 128, 17920, 100352, 16384},
      {"qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, true},
      {"qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 131072, true},
      {"qwen2.5-7b", "Qwen/Qwen2.5-7B", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 131072},
      {"qwen2.5-14b", "Qwen/Qwen2.5-14B", "qwen2", 48, 5120, 40, 8, 128, 13824, 152064, 131072},
      {"qwen2.5-32b", "Qwen/Qwen2.5-32B", "qwen2", 64, 5120, 40, 8, 128, 27648, 152064, 131072},
      {"qwen2.5-72b", "Qwen/Qwen2.5-72B", "qwen2", 80, 8192, 64, 8, 128, 29568, 152064, 131072},
      {"qwen3-0.6b", "Qwen/Qwen3-0.6B", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, true},
      {"qwen3-8b", "Qwen/Qwen3-8B", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960},
      {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", "qwen3_moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, false,
       128, 8, 768},
      {"qwen3-32b", "Qwen/Qwen3-32B", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936, 40960},
  };
  return shapes;
}

ModelConfig PublishedShape::model() const {
  return {.family = family,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .ffn = ffn,
          .vocab = vocab,
          .max_positions = max_positions,
          .tied = tied,
          .experts = experts,
          .experts_per_token = experts_per_token,
          .expert_ffn = expert_ffn};
}

std::vector<std::string> published_shape_names() {
  std::vector<std::string> names;
  for (const PublishedShape& shape : published_shapes()) names.emplace_back(shape.name);
  return names;
}

void take_published_shape(LoadedConfig& loaded, const std::string& name) {
  const auto shape = std::ranges::find(published_shapes(), name, &PublishedShape::name);
  check(shape != published_shapes().end(), "--model is ", quoted(name), ", which is no published shape");
  const std::set<std::string> kept{"model.trainable", "model.pad_to_multiple_of", "model.adapter"};
  Config& c = loaded.config;
  check(c.adapter.empty(), loaded.origin.at("model.adapter"),
        ": model.adapter is an adapter of another model than --model ", name, ": remove it");
  Problems problems;
  for (auto& [key, origin] : loaded.origin) {
    if (!key.starts_with("model.") || kept.contains(key)) continue;
    problems.check(origin != "command line", "--", key, ": --model ", name,
                   " decides this key: leave out one of the two");
    origin = "--model";
  }
  problems.raise();
  c.init_from.clear();
  c.model = shape->model();
}

}  // namespace flatshard
