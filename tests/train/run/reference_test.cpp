#include "train/run/reference.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/json.h"
#include "tests/test.h"
#include "train/config/fields.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A run on an adapter of a model, of whose files only the bytes count here.
Config config_of_files() {
  fs::create_directories("reference_model");
  fs::create_directories("reference_adapter");
  write("reference_model/config.json", "{}");
  write("reference_adapter/adapter_model.safetensors", "weights");
  write("reference_adapter/adapter_config.json", "{\"lora_alpha\": 16}");
  Config config;
  config.init_from = "reference_model";
  config.adapter = "reference_adapter";
  return config;
}

}  // namespace

TEST_CASE("the reference depends on weights, files of model and adapter, and these keys") {
  const nlohmann::json all = nlohmann::json::parse(reference_settings(config_of_files(), "w"));
  std::set<std::string> expected{
      "weights",           "model",          "adapter",      "lora.init",        "lora.save_modules",
      "precision.compute", "precision.tf32", "data.seq_len", "data.max_samples", "data.max_patches"};
  Config config;
  for (const auto& [key, value] : config_values(config))
    if (key.starts_with("quant.") || key.starts_with("model.")) expected.insert(key);
  for (const char* other : {"model.init_from", "model.adapter", "model.trainable"}) expected.erase(other);
  std::set<std::string> found;
  for (const auto& [key, value] : all.items()) found.insert(key);
  CHECK(found == expected);
  CHECK(found.contains("model.layers"));
  CHECK(found.contains("quant.block"));
}

TEST_CASE("the reference is another after a change of each file and key that it depends on") {
  const Config config = config_of_files();
  const std::string before = reference_settings(config, "w");
  CHECK(reference_settings(config, "w") == before);
  CHECK(reference_settings(config, "v") != before);
  for (const char* file : {"reference_model/config.json", "reference_adapter/adapter_model.safetensors",
                           "reference_adapter/adapter_config.json"}) {
    write(file, "{\"lora_alpha\": 64}");
    CHECK_MESSAGE(reference_settings(config, "w") != before, file);
    config_of_files();
    CHECK(reference_settings(config, "w") == before);
  }
  for (const char* change :
       {"model.norm_eps=0.5", "model.rope_theta=7.0", "quant.base=nf4", "quant.block=128",
        "quant.double=true", "lora.init=gaussian", "lora.save_modules=[\"lm_head\"]",
        "precision.compute=fp16", "precision.tf32=true", "data.seq_len=77", "data.max_samples=5",
        "data.max_patches=9"}) {
    write("reference.toml", "");
    Problems ignored;
    Config other = load_config("reference.toml", {change}, ignored).config;
    other.init_from = config.init_from;
    other.adapter = config.adapter;
    CHECK_MESSAGE(reference_settings(other, "w") != before, change);
  }
  for (const char* change : {"optimizer.lr=7.0", "train.head_chunk=64", "run.seed=7", "lora.rank=3",
                             "lora.alpha=99.0", "run.dir=elsewhere", "model.trainable=[\"x\"]"}) {
    Problems ignored;
    Config other = load_config("reference.toml", {change}, ignored).config;
    other.init_from = config.init_from;
    other.adapter = config.adapter;
    CHECK_MESSAGE(reference_settings(other, "w") == before, change);
  }
  Config random;
  const std::string of_seed = reference_settings(random, "");
  random.run.seed = 7;
  CHECK(reference_settings(random, "") != of_seed);
}
