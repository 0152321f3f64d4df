#include "hub/peft_names.h"

#include "hub/adapter_config.h"
#include "runtime/json.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("the modules of Qwen's models that read images have the names that transformers gives them") {
  for (const auto& [in_files, of_peft] :
       {std::pair{"visual.blocks.0.attn.qkv", "model.visual.blocks.0.attn.qkv"},
        {"visual.merger.mlp.0", "model.visual.merger.mlp.0"},
        {"model.layers.1.self_attn.q_proj.lora_A.weight",
         "model.language_model.layers.1.self_attn.q_proj.lora_A.weight"},
        {"model.embed_tokens.weight", "model.language_model.embed_tokens.weight"},
        {"lm_head.weight", "lm_head.weight"}}) {
    CHECK(peft_name("qwen2_5_vl", in_files) == of_peft);
    CHECK(name_in_files("qwen2_5_vl", of_peft) == in_files);
    CHECK(name_in_files("qwen2_5_vl", in_files) == in_files);
    CHECK(peft_name("qwen2", in_files) == in_files);
  }
}

TEST_CASE("an adapter of Qwen's models that read images lists its layers") {
  const AdapterConfig config{.lora = {.targets = std::string(R"(visual\..*qkv|model\..*\.0\..*q_proj)")}};
  const Adapters adapters{{"visual.blocks.0.attn.qkv", {}}, {"model.layers.0.self_attn.q_proj", {}}};
  const auto targets_for = [&](const std::string& family) {
    return nlohmann::json::parse(adapter_config_json(config, adapters, family)).at("target_modules");
  };
  CHECK(targets_for("qwen2_vl") ==
        nlohmann::json{"model.language_model.layers.0.self_attn.q_proj", "model.visual.blocks.0.attn.qkv"});
  CHECK(targets_for("llama") == std::get<std::string>(config.lora.targets));
}
