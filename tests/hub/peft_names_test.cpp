#include "hub/peft_names.h"

#include "hub/adapter_folder.h"
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

TEST_CASE("the module of Mixtral's experts is mlp in PEFT's names and patterns") {
  const std::string in_files = R"(model.layers.0.block_sparse_moe.experts.3.w1|.*\.block_sparse_moe\.gate)",
                    of_peft = R"(model.layers.0.mlp.experts.3.w1|.*\.mlp\.gate)";
  CHECK(peft_name("mixtral", in_files) == of_peft);
  CHECK(name_in_files("mixtral", of_peft) == in_files);
  CHECK(name_in_files("mixtral", in_files) == in_files);
  CHECK(name_in_files("mixtral", "model.mlp_norm.xmlp.mlp") == "model.mlp_norm.xmlp.block_sparse_moe");
  CHECK(peft_name("granitemoe", in_files) == in_files);
}

TEST_CASE("an adapter lists layers by path if it has layers of experts, or their names might be meant") {
  const std::string block = "model.layers.0.", shared = block + "mlp.shared_expert.down_proj",
                    experts = block + "mlp.experts.down_proj", q = block + "self_attn.q_proj";
  const auto written = [](const ModulePatterns& targets, const Adapters& adapters) {
    const AdapterConfig config{.lora = {.targets = targets}};
    return nlohmann::json::parse(adapter_config_json(config, adapters, "qwen2_moe"));
  };
  using List = nlohmann::json;
  const List all =
      written(std::vector<std::string>{"q_proj", "down_proj"}, {{q, {}}, {shared, {}}, {experts, {}}});
  CHECK(all.at("target_modules") == List{shared, q});
  CHECK(all.at("target_parameters") == List::array({experts}));
  CHECK(written("all-linear", {{q, {}}, {shared, {}}}).at("target_modules") == List{shared, q});
  const List attention = written("all-linear", {{q, {}}});
  CHECK(attention.at("target_modules") == List::array({"q_proj"}));
  CHECK(!attention.contains("target_parameters"));
}

TEST_CASE("what a config of PEFT selects has the names of the family's files") {
  using Texts = std::vector<std::string>;
  const LoraConfig lora = selection_of({.lora = {.targets = Texts{"q_proj"},
                                                 .rank_pattern = {{R"(.*\.gate_up_proj)", 6}},
                                                 .alpha_pattern = {{"mlp.experts.down_proj", 3}},
                                                 .save_modules = {"mlp.gate"}},
                                        .parameters = {"mlp.experts.gate_up_proj", "down_proj"}},
                                       "mixtral");
  CHECK(std::get<Texts>(lora.targets) ==
        Texts{"q_proj", "block_sparse_moe.experts.gate_up_proj", "down_proj"});
  CHECK(lora.alpha_pattern.contains("block_sparse_moe.experts.down_proj"));
  CHECK(lora.rank_pattern.size() == 1);
  CHECK(lora.save_modules == Texts{"block_sparse_moe.gate"});
  const LoraConfig images =
      selection_of({.lora = {.targets = Texts{"model.visual.blocks.0.attn.qkv",
                                              "model.language_model.layers.1.mlp.up_proj"}}},
                   "qwen2_vl");
  CHECK(std::get<Texts>(images.targets) == Texts{"visual.blocks.0.attn.qkv", "model.layers.1.mlp.up_proj"});
}
