#include "hub/adapter_config.h"

#include "runtime/whole_file.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const std::string kPath = "adapter_config_test.json";

struct Read {
  AdapterConfig config;
  std::vector<std::string> warnings;
};

Read read(const std::string& text) {
  write_whole_file(kPath, text);
  Read result;
  result.config = read_adapter_config(kPath, result.warnings);
  return result;
}

std::string error_reading(const std::string& text) {
  return test::error_of([&] { read(text); });
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("an adapter_config.json of only its type has the defaults of PEFT") {
  const auto [config, warnings] = read(R"({"peft_type": "LORA"})");
  CHECK(config.lora.rank == 8);
  CHECK(config.lora.alpha == 8);
  CHECK(config.lora.dropout == 0);
  CHECK(std::get<Texts>(config.lora.targets).empty());
  CHECK(std::get<Texts>(config.lora.exclude).empty());
  CHECK(config.lora.init == LoraInit::kaiming);
  CHECK(config.base.empty());
  CHECK(warnings.empty());
}

TEST_CASE("every key of adapter_config.json that LoRA computes with is read") {
  const AdapterConfig c = read(R"({
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "models/base", "revision": "v2",
    "r": 16, "lora_alpha": 64, "lora_dropout": 0.05, "target_modules": ["q_proj", "v_proj"],
    "exclude_modules": ".*layers\\.0.*", "layers_to_transform": 3, "layers_pattern": "layers",
    "rank_pattern": {"q_proj": 4}, "alpha_pattern": {"v_proj": 2.5}, "use_rslora": true,
    "init_lora_weights": "gaussian", "modules_to_save": ["lm_head"], "fan_in_fan_out": true,
    "megatron_config": {"tp": 2}, "use_dora": false, "lora_bias": null, "peft_version": "0.17.0"})")
                              .config;
  CHECK(c.lora.rank == 16);
  CHECK(c.lora.alpha == 64);
  CHECK(c.lora.dropout == 0.05);
  CHECK(std::get<Texts>(c.lora.targets) == Texts{"q_proj", "v_proj"});
  CHECK(std::get<std::string>(c.lora.exclude) == ".*layers\\.0.*");
  CHECK(c.lora.layers == std::vector<int64_t>{3});
  CHECK(c.layers_pattern == Texts{"layers"});
  CHECK(c.lora.rank_pattern.at("q_proj") == 4);
  CHECK(c.lora.alpha_pattern.at("v_proj") == 2.5);
  CHECK(c.lora.rslora);
  CHECK(c.lora.init == LoraInit::gaussian);
  CHECK(c.lora.save_modules == Texts{"lm_head"});
  CHECK(c.fan_in_fan_out);
  CHECK(c.base == "models/base");
  CHECK(c.revision == "v2");
  CHECK(c.kept.at("megatron_config") == R"({"tp":2})");
}

TEST_CASE("a setting of adapter_config.json that would change the result is refused by name") {
  const auto refused = [](const std::string& member, const std::string& message) {
    CHECK(error_reading(R"({"peft_type": "LORA", )" + member + "}") == kPath + ": " + message);
  };
  refused(R"("use_dora": true)", "use_dora is true, must be false: nothing else is supported");
  refused(R"("bias": "all")", "bias is \"all\", must be \"none\": nothing else is supported");
  refused(R"("task_type": "SEQ_CLS")",
          "task_type is \"SEQ_CLS\", must be \"CAUSAL_LM\": nothing else is supported");
  refused(R"("layer_replication": [[0, 2]])",
          "layer_replication is [[0,2]], must be null: this is not supported");
  refused(R"("trainable_token_indices": [1])",
          "trainable_token_indices is [1], must be null: this is not supported");
  refused(
      R"("init_lora_weights": "pissa")",
      "init_lora_weights is \"pissa\", must be true, false or \"gaussian\": other methods change the base");
  refused(R"("r": 0)", "r is 0, must be from 1 to 8192");
  refused(R"("r": 2.5)", "r is 2.5, must be a whole number");
  refused(R"("lora_dropout": 1)", "lora_dropout is 1, must be less than 1");
  refused(R"("rank_pattern": {"q": "8"})", "rank_pattern: \"q\" is \"8\", must be from 1 to 8192");
  refused(R"("target_modules": [1])", "target_modules is [1], must be a list of strings");
  refused(R"("layers_to_transform": [-1])",
          "layers_to_transform is [-1], must be an index of a block, or a list of them");
  CHECK(error_reading(R"({"peft_type": "IA3"})") ==
        kPath + ": peft_type is \"IA3\", must be \"LORA\": nothing else is supported");
  CHECK(error_reading("{}") == kPath + ": peft_type is missing, must be \"LORA\"");
  CHECK(error_reading("[]") == kPath + ": must be a JSON object");
}

TEST_CASE("an unknown key of adapter_config.json is a warning") {
  CHECK(read(R"({"peft_type": "LORA", "shiny": 1})").warnings ==
        Texts{kPath + ": the key \"shiny\" is unknown and ignored"});
}

TEST_CASE("adapter_config.json is written with the classic keys of PEFT, sorted") {
  const AdapterConfig config{.lora = {.rank = 8, .dropout = 0.1, .targets = Texts{"q_proj"}},
                             .base = "models/base",
                             .revision = {},
                             .layers_pattern = {},
                             .kept = {}};
  CHECK(adapter_config_json(config, {}, "llama") == R"({
  "alpha_pattern": {},
  "auto_mapping": null,
  "base_model_name_or_path": "models/base",
  "bias": "none",
  "fan_in_fan_out": false,
  "inference_mode": true,
  "init_lora_weights": true,
  "layer_replication": null,
  "layers_pattern": null,
  "layers_to_transform": null,
  "loftq_config": {},
  "lora_alpha": 16,
  "lora_dropout": 0.1,
  "megatron_config": null,
  "megatron_core": "megatron.core",
  "modules_to_save": null,
  "peft_type": "LORA",
  "r": 8,
  "rank_pattern": {},
  "revision": null,
  "target_modules": [
    "q_proj"
  ],
  "task_type": "CAUSAL_LM",
  "use_dora": false,
  "use_rslora": false
}
)");
}

TEST_CASE("adapter_config.json is read back as it was written") {
  AdapterConfig config;
  config.lora = {.rank = 4,
                 .alpha = 2.5,
                 .dropout = 0.25,
                 .targets = ".*q_proj",
                 .exclude = Texts{"lm_head"},
                 .rank_pattern = {{"q_proj", 16}},
                 .alpha_pattern = {{"q_proj", 0.5}},
                 .rslora = true,
                 .init = LoraInit::gaussian,
                 .save_modules = {"embed_tokens", "lm_head"}};
  config.base = "base";
  config.revision = "main";
  config.fan_in_fan_out = true;
  config.kept["auto_mapping"] = R"({"parent_library":"x"})";
  const std::string text = adapter_config_json(config, {}, "llama");
  CHECK(adapter_config_json(read(text).config, {}, "llama") == text);
}

TEST_CASE("targets that PEFT refuses or that other readers do not know are written as a list") {
  AdapterConfig config;
  config.lora = {.rank = 8, .targets = "all-linear", .layers = {1}};
  const Adapters adapters{{"model.layers.1.mlp.up_proj", {.rank = 8, .scale = 2}},
                          {"model.layers.1.self_attn.q_proj", {.rank = 8, .scale = 2}}};
  AdapterConfig written = read(adapter_config_json(config, adapters, "llama")).config;
  CHECK(std::get<Texts>(written.lora.targets) == Texts{"q_proj", "up_proj"});
  CHECK(written.lora.layers == std::vector<int64_t>{1});
  config.lora.targets = ".*(q|up)_proj";
  written = read(adapter_config_json(config, adapters, "llama")).config;
  CHECK(std::get<Texts>(written.lora.targets) ==
        Texts{"model.layers.1.mlp.up_proj", "model.layers.1.self_attn.q_proj"});
  CHECK(written.lora.layers.empty());
}
