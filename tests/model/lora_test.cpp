#include "model/lora.h"

#include "hub/adapter_config.h"
#include "model/model.h"
#include "runtime/json.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Texts = std::vector<std::string>;

// A model of three blocks, without memory.
class Planned {
 public:
  explicit Planned(const ModelConfig& config) : model_(resolved(config), tables_) {}
  const Model& operator*() const { return model_; }

 private:
  Arena tables_{"tables", Device::cpu()};
  Model model_;
};

ModelConfig small(const std::string& family) {
  return {
      .family = family, .layers = 3, .hidden = 16, .heads = 4, .ffn = 24, .vocab = 40, .max_positions = 32};
}

AdapterChoice choose(const std::string& family, const LoraConfig& lora) {
  return choose_adapters(lora, *Planned(small(family)));
}

}  // namespace

TEST_CASE("for every family and setting the layers, ranks and scales are those of PEFT") {
  const std::string path = str(kSourceDir, "/tests/golden/adapters/targets.json"), config = "lora_test.json";
  for (const nlohmann::json& golden : nlohmann::json::parse(read_whole_file(path, 1 << 20))) {
    const std::string family = golden["family"], settings = golden["settings"].dump();
    CAPTURE(family);
    CAPTURE(settings);
    write_whole_file(config, settings);
    Texts warnings;
    LoraConfig lora = read_adapter_config(config, warnings).lora;
    if (!golden["settings"].contains("target_modules"))
      lora.targets = family == "gpt2" ? Texts{"c_attn"} : Texts{"q_proj", "v_proj"};
    nlohmann::json found;
    test::error_of([&] {
      for (const auto& [layer, adapter] : choose(family, lora).adapters)
        found[layer] = {adapter.rank, adapter.scale};
    });
    CHECK(found.size() == golden["layers"].size());
    for (const auto& [layer, adapter] : golden["layers"].items()) {
      CAPTURE(layer);
      REQUIRE(found.contains(layer));
      CHECK(found[layer][0] == adapter[0]);
      CHECK(found[layer][1].get<double>() == doctest::Approx(adapter[1].get<double>()).epsilon(1e-7));
    }
  }
}

TEST_CASE("patterns that match nothing are named") {
  const AdapterChoice choice = choose("llama", {.rank = 8,
                                                .targets = Texts{"q_proj", "w1", "w2"},
                                                .exclude = Texts{"w3"},
                                                .rank_pattern = {{"k_proj", 4}}});
  CHECK(choice.adapters.size() == 3);
  CHECK(choice.warnings ==
        Texts{"lora.targets: \"w1\" matches no module", "lora.targets: \"w2\" matches no module",
              "lora.exclude: \"w3\" matches no module", "lora.rank_pattern: \"k_proj\" matches no adapter"});
  CHECK(test::error_of([] { choose("llama", {.rank = 8, .targets = Texts{"w1"}}); }) ==
        "lora.targets matches no linear layer; paths look like model.layers.0.self_attn.q_proj: a list names "
        "paths or their ends, a string is a regular expression for whole paths");
  CHECK(test::error_of([] {
          choose("llama", {.rank = 8, .targets = "(q_proj"});
        }).starts_with("lora.targets: \"(q_proj\" is not a regular expression: "));
  CHECK(test::error_of([] {
          choose("llama", {.rank = 8, .targets = Texts{"embed_tokens"}});
        }).starts_with("lora.targets: model.embed_tokens cannot have an adapter"));
  CHECK(test::error_of([] {
          choose("llama", {.rank = 8, .targets = ".*self_attn.*"});
        }).starts_with("lora.targets: model.layers.0.self_attn cannot have an adapter"));
}

TEST_CASE("scales are alpha over the rank, or over its square root") {
  CHECK(lora_scale(16, 8, false) == 2);
  CHECK(lora_scale(16, 8, true) == doctest::Approx(5.65685));
  CHECK(lora_scale(64, 8, false) == 8);
  CHECK(lora_scale(64, 8, true) == doctest::Approx(22.627417));
}

TEST_CASE("published models and their adapters of rank 8 have the published numbers of parameters") {
  struct Published {
    ModelConfig config;
    int64_t parameters, all_linear, q_and_v;
  };
  const auto llama = [](const char* family, int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads,
                        int64_t ffn, int64_t vocab) {
    return ModelConfig{.family = family,
                       .layers = layers,
                       .hidden = hidden,
                       .heads = heads,
                       .kv_heads = kv_heads,
                       .ffn = ffn,
                       .vocab = vocab,
                       .max_positions = 2048};
  };
  ModelConfig qwen2 = llama("qwen2", 24, 896, 14, 2, 4864, 151936),
              qwen3 = llama("qwen3", 28, 1024, 16, 8, 3072, 151936);
  qwen2.tied = qwen3.tied = true;
  qwen3.head_dim = 128;
  for (const Published& p : {
           Published{llama("llama", 32, 4096, 32, 32, 11008, 32000), 6738415616, 19988480, 4194304},
           Published{llama("llama", 32, 4096, 32, 32, 11008, 32016), 6738546688, 19988480, 4194304},
           Published{llama("llama", 80, 8192, 64, 8, 28672, 32000), 68976648192, 103546880, 16384000},
           Published{llama("llama", 32, 4096, 32, 8, 14336, 128256), 8030261248, 20971520, 3407872},
           Published{llama("mistral", 32, 4096, 32, 8, 14336, 32000), 7241732096, 20971520, 3407872},
           Published{qwen2, 494032768, 4399104, 540672},
           Published{qwen3, 596049920, 5046272, 1146880},
       }) {
    CAPTURE(p.parameters);
    const Planned base(p.config);
    CHECK((*base).parameter_count() == p.parameters);
    const auto trained = [&](const ModulePatterns& targets) {
      ModelConfig adapted = p.config;
      adapted.adapters = choose_adapters({.rank = 8, .targets = targets}, *base).adapters;
      return (*Planned(adapted)).parameter_count() - p.parameters;
    };
    CHECK(trained("all-linear") == p.all_linear);
    CHECK(trained(Texts{"q_proj", "v_proj"}) == p.q_and_v);
  }
  // With an adapter on the output head.
  ModelConfig llama3 = llama("llama", 32, 4096, 32, 8, 14336, 128256);
  const Texts with_head{"q_proj", "k_proj", "v_proj", "o_proj", "w1", "w2", "w3", "lm_head"};
  llama3.adapters = choose_adapters({.rank = 8, .targets = with_head}, *Planned(llama3)).adapters;
  CHECK((*Planned(llama3)).parameter_count() - 8030261248 == 7874560);
  ModelConfig gpt2 = llama("gpt2", 12, 768, 12, 12, 3072, 50257);
  gpt2.max_positions = 1024;
  const Planned base(gpt2);
  CHECK((*base).parameter_count() == 124439808);
  gpt2.adapters = choose_adapters({.rank = 8, .targets = Texts{"c_attn"}}, *base).adapters;
  CHECK((*Planned(gpt2)).parameter_count() == 124439808 + 294912);
}

TEST_CASE("experts have adapters if they are named, and routers have none") {
  ModelConfig mixture = small("mixtral");
  mixture.ffn = 32;
  mixture.experts = 3;
  mixture.experts_per_token = 2;
  const Planned model(mixture);
  const auto chosen = [&](const ModulePatterns& targets, const ModulePatterns& exclude = Texts{}) {
    return choose_adapters({.rank = 2, .targets = targets, .exclude = exclude}, *model).adapters;
  };
  constexpr size_t kBlocks = 3;
  const Adapters all = chosen("all-linear");
  CHECK(all.size() == kBlocks * 4);
  for (const auto& [path, adapter] : all) CHECK(path.find(".self_attn.") != path.npos);
  CHECK(chosen(Texts{"gate_up_proj", "q_proj"}).size() == kBlocks * 2);
  CHECK(chosen(R"(.*\.(gate_up|down)_proj)", Texts{"1.block_sparse_moe.experts.down_proj"}).size() ==
        kBlocks * 2 - 1);
  const Adapters one = chosen(Texts{"2.block_sparse_moe.experts.down_proj"});
  CHECK(one.size() == 1);
  CHECK(one.contains("model.layers.2.block_sparse_moe.experts.down_proj"));
  CHECK(test::error_of([&] { chosen(Texts{"gate"}); }).find("only linear layers can") != std::string::npos);
  CHECK(choose_adapters({.rank = 2, .targets = Texts{"q_proj", "w1", "w2"}}, *model).warnings ==
        Texts{"lora.targets: \"w1\" matches no module", "lora.targets: \"w2\" matches no module",
              "lora.targets: \"w1\" names no layer of experts, whose layer is gate_up_proj",
              "lora.targets: \"w2\" names no layer of experts, whose layer is down_proj"});
}
