#include "hub/hf_config.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "runtime/json.h"
#include "tests/small_model.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr char kPath[] = "hf_config_test.json";

ModelConfig read_text(const std::string& text) {
  std::ofstream(kPath) << text;
  return read_hf_config(kPath);
}

// A llama with these keys on top of the sizes, or in place of them, or another family.
std::string with_keys(const std::string& keys, const std::string& type = "llama") {
  nlohmann::json all{{"model_type", type},       {"vocab_size", 100},
                     {"hidden_size", 32},        {"intermediate_size", 48},
                     {"num_hidden_layers", 4},   {"num_attention_heads", 4},
                     {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
  all.update(nlohmann::json::parse('{' + keys + '}'));
  return all.dump();
}

std::string error_of_text(const std::string& text) {
  const std::string error = test::error_of([&] { read_text(text); });
  CHECK(error.starts_with(std::string(kPath) + ": "));
  return error.substr(std::min(error.size(), sizeof(kPath) + 1));
}

}  // namespace

TEST_CASE("a config of each family is read back as it was written") {
  for (const Family& f : families())
    for (const bool tied : {false, true})
      for (const int64_t window : {0, 7}) {
        CAPTURE(f.name);
        ModelConfig c = test::small_model(f.name);
        c.tied = tied;
        c.norm_eps = 2e-5;
        if (f.positions == PositionKind::rotary) c.rope_theta = 5e5;
        if (f.name == "glm4") c.qkv_bias = tied;
        if (f.name == "phi3") c.partial_rotary_factor = 0.5;
        if (f.name != "llama" && f.name != "gpt2" && f.name != "olmo2" && f.name != "granite" &&
            f.name != "glm4" && f.name != "glm4_moe" && f.name != "olmoe" && f.name != "granitemoe" &&
            f.name != "qwen2_moe" && f.name != "idefics3" && f.name != "smolvlm")
          c.window = window;
        const std::string text = hf_config_json(c, DType::bf16);
        const ModelConfig read = read_text(text);
        CHECK(hf_config_json(read, DType::bf16) == text);
        CHECK(read.hidden == c.hidden);
        CHECK(read.head_dim == c.head_dim);
        CHECK(read.kv_heads == c.kv_heads);
        CHECK(read.ffn == c.ffn);
        CHECK(read.max_positions == c.max_positions);
        CHECK(read.window == c.window);
        for (int64_t i = 0; i < c.layers; ++i) {
          CHECK(read.window_of(i) == c.window_of(i));
          CHECK(read.rotates(i) == c.rotates(i));
        }
        CHECK(read.query_scalar == c.query_scalar);
        CHECK(read.attention_softcap == c.attention_softcap);
        CHECK(read.logit_softcap == c.logit_softcap);
        CHECK(read.tied == c.tied);
        CHECK(read.norm_eps == c.norm_eps);
        CHECK(read.rope_theta == c.rope_theta);
        CHECK(read.window_rope_theta == c.window_rope_theta);
        CHECK(read.partial_rotary_factor == c.partial_rotary_factor);
        CHECK(read.qkv_bias == c.qkv_bias);
        CHECK(read.embedding_multiplier == c.embedding_multiplier);
        CHECK(read.residual_multiplier == c.residual_multiplier);
        CHECK(read.attention_scale() == c.attention_scale());
        CHECK(read.logit_divisor == c.logit_divisor);
        CHECK(read.experts == c.experts);
        CHECK(read.experts_per_token == c.experts_per_token);
        CHECK(read.expert_ffn == c.expert_ffn);
        CHECK(read.dense_blocks == c.dense_blocks);
        CHECK(read.norm_topk == c.norm_topk);
      }
}

TEST_CASE("the keys of gpt_oss are read, and values that no run has are refused") {
  const std::string keys =
      "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"rope_scaling\":{\"rope_type\":\"default\"}";
  const ModelConfig usual = read_text(with_keys(keys, "gpt_oss"));
  CHECK(usual.swiglu_limit == 7);
  CHECK(usual.window == 128);
  CHECK(usual.full_attention_every == 2);
  CHECK(usual.sinks);
  CHECK(usual.norm_topk == true);
  CHECK(read_text(with_keys(keys + ",\"swiglu_limit\":2.5", "gpt_oss")).swiglu_limit == 2.5);
  const auto error = [&](const std::string& more) {
    return error_of_text(with_keys(keys + more, "gpt_oss"));
  };
  CHECK(error(",\"swiglu_limit\":0").starts_with("swiglu_limit is 0"));
  CHECK(error(",\"swiglu_alpha\":1.5") ==
        "swiglu_alpha is 1.5, must be 1.702: other values are not supported");
  CHECK(error(",\"attention_bias\":false") ==
        "attention_bias is false, must be true: other values are not supported");
  CHECK(error(",\"experts_per_token\":3") == "experts_per_token is 3, must be 2, as num_experts_per_tok");
  CHECK(read_text(with_keys(keys + ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}", "gpt_oss"))
            .experts == 8);
  CHECK(error_of_text(with_keys("\"num_local_experts\":8,\"num_experts_per_tok\":2", "gpt_oss")) ==
        "rope_scaling is missing");
}

TEST_CASE("experts in groups, blocks without them, and the width of shared ones are read") {
  const std::string keys =
      "\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":64,\"n_shared_experts\":2,";
  const ModelConfig usual = read_text(with_keys(keys + "\"use_cache\":true", "glm4_moe"));
  CHECK(usual.dense_blocks == std::vector<int64_t>{0});
  CHECK(usual.shared_ffn == 128);
  CHECK(usual.expert_groups == 1);
  CHECK(usual.routed_scale == 1);
  CHECK(usual.norm_topk == true);
  CHECK(usual.qk_norm == false);
  const ModelConfig c = read_text(with_keys(
      keys + "\"first_k_dense_replace\":0,\"n_group\":4,\"topk_group\":2,\"routed_scaling_factor\":2.5,"
             "\"norm_topk_prob\":false,\"use_qk_norm\":true,\"attention_bias\":true",
      "glm4_moe"));
  CHECK(c.dense_blocks.empty());
  CHECK(c.expert_groups == 4);
  CHECK(c.top_groups == 2);
  CHECK(c.routed_scale == 2.5);
  CHECK(c.norm_topk == false);
  CHECK(c.qk_norm == true);
  CHECK(c.qkv_bias == true);
  CHECK(error_of_text(with_keys(keys + "\"first_k_dense_replace\":5", "glm4_moe")) ==
        "first_k_dense_replace is 5, must be a whole number from 0 to 4");
  CHECK(error_of_text(with_keys(keys + "\"n_group\":3", "glm4_moe")) ==
        "model.expert_groups is 3, must divide model.experts = 8 into at most 32 groups of at least two");
  CHECK(error_of_text(with_keys(keys + "\"n_group\":4,\"num_experts_per_tok\":3", "glm4_moe"))
            .starts_with("model.top_groups = 1 of 4 groups have 2 experts, fewer than"));
}

TEST_CASE("a mixture of experts has either key for their number, and blocks without them by two keys") {
  const std::string of_token = "\"num_experts_per_tok\":2,\"moe_intermediate_size\":64,";
  const auto qwen = [&](const std::string& keys) {
    return read_text(with_keys(of_token + keys, "qwen3_moe"));
  };
  CHECK(qwen("\"num_experts\":8").experts == 8);
  const ModelConfig c = qwen("\"num_local_experts\":6,\"norm_topk_prob\":true,\"mlp_only_layers\":[1]");
  CHECK(c.experts == 6);
  CHECK(c.expert_ffn == 64);
  CHECK(c.norm_topk == true);
  CHECK(c.dense_blocks == std::vector<int64_t>{1});
  CHECK(c.has_experts(0));
  CHECK_FALSE(c.has_experts(1));
  CHECK(c.router_aux_loss == 0);
  CHECK(qwen("\"num_experts\":8,\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]").dense_blocks ==
        std::vector<int64_t>{0, 2, 3});
  CHECK(
      qwen("\"num_experts\":8,\"output_router_logits\":true,\"router_aux_loss_coef\":0.02").router_aux_loss ==
      0.02);
  const auto error = [&](const std::string& keys, const char* type) {
    return error_of_text(with_keys(of_token + keys, type));
  };
  CHECK(error("\"num_experts\":8,\"mlp_only_layers\":[4]", "qwen3_moe")
            .ends_with("must be a list of layers from 0 to 3"));
  CHECK(error("\"num_experts\":8,\"clip_qkv\":5", "olmoe") ==
        "clip_qkv is 5, must be null: other values are not supported");
  CHECK(error("\"num_local_experts\":8,\"router_jitter_noise\":0.1", "mixtral") ==
        "router_jitter_noise is 0.1, must be 0: other values are not supported");
  CHECK(error("\"num_experts\":1", "qwen3_moe") ==
        "model.experts_per_token is 2, must be from 1 to model.experts = 1");
  CHECK(error("\"use_cache\":true", "mixtral") == "num_experts is missing");
  const ModelConfig mixtral =
      read_text(with_keys("\"num_local_experts\":8,\"num_experts_per_tok\":2", "mixtral"));
  CHECK(mixtral.expert_ffn == 48);
  CHECK(mixtral.norm_topk == true);
  CHECK(mixtral.window == 0);
}

TEST_CASE("configs of Qwen's models that read images are read in both forms") {
  const std::string tower =
      R"("vision_config":{"depth":2,"embed_dim":24,"mlp_ratio":2,"num_heads":2,"hidden_size":16,)"
      R"("patch_size":4,"in_chans":3}})";
  const std::string text = R"("vocab_size":40,"hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,)"
                           R"("num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,)";
  const ModelConfig published =
      read_text(R"({"model_type":"qwen2_vl","image_token_id":39,)" + text +
                R"("rope_scaling":{"type":"mrope","mrope_section":[1,1,2]},)" + tower);
  const ModelConfig nested = read_text(
      R"({"model_type":"qwen2_vl","image_token_id":39,"text_config":{"model_type":"qwen2_vl_text",)" + text +
      R"("rope_parameters":{"rope_type":"default","rope_theta":1e6,"mrope_section":[1,1,2]}},)" + tower);
  CHECK(hf_config_json(published, DType::f32) == hf_config_json(nested, DType::f32));
  CHECK(published.rope_sections == RopeSections{1, 1, 2});
  CHECK(published.vision->ffn == 48);
  CHECK(published.vision->repeats == 2);
  CHECK(published.rope_theta == 1e6);
  const std::string other = R"({"model_type":"qwen2_vl","image_token_id":39,)" + text;
  CHECK(test::missing_from(
            error_of_text(other + R"("rope_scaling":{"type":"mrope","mrope_section":[1,1,1]},)" + tower),
            {"1, 1, 1", "add up to 4"}) == "");
  CHECK(test::missing_from(
            error_of_text(other + R"("rope_scaling":{"type":"mrope","mrope_section":[1,1.5,1.5]},)" + tower),
            {"mrope_section", "whole numbers"}) == "");
  CHECK(test::missing_from(error_of_text(other + R"("rope_scaling":{"type":"yarn","factor":2},)" + tower),
                           {"type", "default or mrope"}) == "");
}

TEST_CASE("config.json is written in the format of transformers") {
  ModelConfig c = test::small_model("llama");
  c.rope_scaling = {.kind = RopeScaling::Kind::llama3, .factor = 8, .original_max_positions = 32};
  CHECK(hf_config_json(c, DType::f32) == R"({
  "architectures": [
    "LlamaForCausalLM"
  ],
  "model_type": "llama",
  "vocab_size": 40,
  "hidden_size": 16,
  "intermediate_size": 24,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "head_dim": 4,
  "hidden_act": "silu",
  "max_position_embeddings": 64,
  "rms_norm_eps": 1e-06,
  "rope_theta": 10000.0,
  "rope_scaling": {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32
  },
  "attention_bias": false,
  "attention_dropout": 0.0,
  "tie_word_embeddings": false,
  "bos_token_id": null,
  "eos_token_id": null,
  "pad_token_id": null,
  "initializer_range": 0.02,
  "use_cache": true,
  "torch_dtype": "float32"
}
)");
}

TEST_CASE("special token ids are copied from another config.json") {
  const ModelConfig c = test::small_model("llama");
  const auto written = [&](const std::string& text) {
    std::ofstream("tokens.json") << text;
    return hf_config_json(c, DType::f32, "tokens.json");
  };
  const std::string text = written(R"({"bos_token_id":1,"eos_token_id":[2,32002],"vocab_size":7})");
  CHECK(
      text.find(
          "\"bos_token_id\": 1,\n  \"eos_token_id\": [\n    2,\n    32002\n  ],\n  \"pad_token_id\": null") !=
      std::string::npos);
  CHECK(text.find("\"vocab_size\": 40") != std::string::npos);
  CHECK(test::error_of([&] { written(R"({"eos_token_id":["</s>"]})"); }) ==
        "tokens.json: eos_token_id is [\"</s>\"], must be a token id or a list of token ids");
  CHECK(test::error_of([&] { written("[]"); }) == "tokens.json: must be a JSON object");
}

TEST_CASE("a setting that a family's format cannot express is not written") {
  const auto error = [](ModelConfig c) { return test::error_of([&] { hf_config_json(c, DType::f32); }); };
  ModelConfig c = test::small_model("llama");
  c.window = 8;
  CHECK(error(c) ==
        "model.window = 8 cannot be written to a Hugging Face config of family llama, where window is always "
        "0");
  c = test::small_model("qwen2");
  c.qkv_bias = false;
  CHECK(error(c) ==
        "model.qkv_bias = 0 cannot be written to a Hugging Face config of family qwen2, where qkv_bias is "
        "always 1");
  c = test::small_model("mistral");
  c.full_attention_every = 2;
  CHECK(error(c).starts_with("model.full_attention_every = 2 cannot be written"));
  c.full_attention_every = 0;
  c.no_rope_every = 2;
  CHECK(error(c).starts_with("model.no_rope_every = 2 cannot be written"));
  c.no_rope_every = 0;
  c.no_rope_blocks = {1};
  CHECK(error(c).starts_with("model.no_rope_blocks = [1] cannot be written"));
  c.no_rope_blocks = {};
  c.window_rope_theta = 100;
  CHECK(error(c).starts_with("model.window_rope_theta = 100 cannot be written"));
  c.window_rope_theta = 0;
  c.attention_softcap = 2;
  CHECK(error(c).starts_with("model.attention_softcap = 2 cannot be written"));
  c.attention_softcap = 0;
  c.logit_softcap = 2;
  CHECK(error(c).starts_with("model.logit_softcap = 2 cannot be written"));
  c.logit_softcap = 0;
  c.query_scalar = 5;
  CHECK(error(c).starts_with("model.query_scalar = 5 cannot be written"));
  c = test::small_model("phi3");
  c.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 2};
  CHECK(error(c).starts_with("model.rope_scaling.kind = linear cannot be written"));
  c = test::small_model("mistral");
  c.qk_norm = true;
  CHECK(error(c).starts_with("model.qk_norm = 1 cannot be written"));
  c = test::small_model("gpt2");
  c.kv_heads = 2;
  CHECK(error(c).starts_with("model.kv_heads = 2 cannot be written"));
  c.max_positions = 0;
  c.kv_heads = 4;
  CHECK(error(c) == "model.max_positions is 0, must be positive");
  CHECK(test::error_of([&] { hf_config_json(test::small_model("gpt2"), DType::i32); }) ==
        "weights are i32, must be f32, bf16 or f16");
}

TEST_CASE("absent keys have transformers' defaults") {
  const ModelConfig llama = read_text(with_keys(""));
  CHECK(llama.head_dim == 8);
  CHECK(llama.norm_eps == 1e-6);
  CHECK(llama.rope_theta == 10000.0);
  CHECK(llama.rope_scaling.kind == RopeScaling::Kind::none);
  CHECK(llama.tied == false);
  CHECK(read_text(with_keys("\"num_key_value_heads\":null")).kv_heads == 4);
  CHECK(read_text(with_keys("", "mistral")).window == 4096);
  CHECK(read_text(with_keys("\"sliding_window\":null", "mistral")).window == 0);
  CHECK(read_text(with_keys("", "qwen2")).window == 0);
  CHECK(read_text(with_keys("", "qwen3")).head_dim == 128);
  const ModelConfig gemma2 = read_text(with_keys("", "gemma2"));
  CHECK(gemma2.head_dim == 256);
  CHECK(gemma2.query_scalar == 256);
  CHECK(gemma2.attention_softcap == 50.0);
  CHECK(gemma2.logit_softcap == 30.0);
  CHECK(gemma2.tied == true);
  CHECK(gemma2.window_of(0) == 4096);
  CHECK(gemma2.window_of(1) == 0);
  const ModelConfig uncapped =
      read_text(with_keys(R"("attn_logit_softcapping":null,"final_logit_softcapping":null)", "gemma2"));
  CHECK(uncapped.attention_softcap == 0.0);
  CHECK(uncapped.logit_softcap == 0.0);
  CHECK(read_text(with_keys("", "phi3")).window == 0);
  CHECK(read_text(with_keys("", "phi3")).norm_eps == 1e-5);
  CHECK(read_text(with_keys("", "olmo2")).norm_eps == 1e-5);
  const ModelConfig smollm3 = read_text(with_keys("", "smollm3"));
  CHECK(smollm3.rope_theta == 2e6);
  CHECK(smollm3.tied == true);
  CHECK(smollm3.rotates(2));
  CHECK(!smollm3.rotates(3));
  const ModelConfig gpt2 = read_text(
      "{\"model_type\":\"gpt2\",\"vocab_size\":9,\"n_positions\":8,\"n_embd\":6,\"n_layer\":1,\"n_head\":2}");
  CHECK(gpt2.ffn == 24);
  CHECK(gpt2.tied == true);
  CHECK(gpt2.norm_eps == 1e-5);
}

TEST_CASE("both spellings of the rotary keys are read, and must agree") {
  const std::string v5 =
      "\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\",\"factor\":32.0,"
      "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,\"original_max_position_embeddings\":16}";
  const ModelConfig c = read_text(with_keys(v5));
  CHECK(c.rope_theta == 500000.0);
  CHECK(c.rope_scaling.kind == RopeScaling::Kind::llama3);
  CHECK(c.rope_scaling.factor == 32.0);
  CHECK(c.rope_scaling.original_max_positions == 16);
  CHECK(read_text(with_keys("\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}")).rope_scaling.factor ==
        2.0);
  CHECK(read_text(with_keys("\"rope_scaling\":null,\"rope_parameters\":{\"rope_type\":\"default\"}"))
            .rope_scaling.kind == RopeScaling::Kind::none);
  CHECK(error_of_text(with_keys(v5 + ",\"rope_theta\":10000.0")) ==
        "rope_theta is 10000.0, must be equal to that of rope_parameters");
  CHECK(error_of_text(with_keys(v5 + ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}"))
            .ends_with("must be equal to rope_parameters"));
  CHECK(error_of_text(with_keys("\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2}")) ==
        "rope_scaling.rope_type is \"dynamic\", must be default, linear, llama3, yarn or longrope: other "
        "scalings are not supported");
  CHECK(error_of_text(with_keys("\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":2}")) ==
        "rope_scaling.low_freq_factor is missing");
  CHECK(error_of_text(with_keys("\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1.0}}"))
            .ends_with("must be one set for all layers"));
  const std::string dtypes = "\"dtype\":\"bfloat16\",\"torch_dtype\":";
  CHECK(read_text(with_keys(dtypes + "\"bfloat16\"")).hidden == c.hidden);
  CHECK(error_of_text(with_keys(dtypes + "\"float16\"")) ==
        "dtype is \"bfloat16\", must be equal to torch_dtype");
}

TEST_CASE("the sliding window of Qwen applies to the last layers, or to those of a list") {
  const std::string on = "\"use_sliding_window\":true,\"sliding_window\":16";
  CHECK(read_text(with_keys(on + ",\"max_window_layers\":0", "qwen2")).window == 16);
  CHECK(read_text(with_keys(on + ",\"max_window_layers\":4", "qwen2")).window == 0);
  CHECK(read_text(with_keys(on, "qwen3")).window == 0);  // from layer 28 on, of 4
  const ModelConfig last = read_text(with_keys(on + ",\"max_window_layers\":2", "qwen2"));
  CHECK(last.window == 16);
  CHECK(last.full_attention_blocks == std::vector<int64_t>{0, 1});
  CHECK(hf_config_json(last, DType::f32).find("\"max_window_layers\": 2") != std::string::npos);
  const auto types = [](const char* a, const char* b) {
    const std::string two = str('"', a, "_attention\",\"", b, "_attention\"");
    return str(",\"layer_types\":[", two, ',', two, ']');
  };
  CHECK(read_text(with_keys(on + types("sliding", "sliding"), "qwen2")).window == 16);
  CHECK(read_text(with_keys(on + types("full", "full"), "qwen2")).window == 0);
  CHECK(read_text(with_keys(on + types("sliding", "full"), "qwen2")).full_attention_every == 2);
  CHECK(error_of_text(with_keys(types("sliding", "sliding").substr(1))).starts_with("layer_types is "));
}

TEST_CASE("windows and rotary positions of layers are read from lists and intervals") {
  const auto types = [](const std::string& kinds) {  // s or f for each layer
    nlohmann::json list = nlohmann::json::array();
    for (const char kind : kinds) list.push_back(kind == 's' ? "sliding_attention" : "full_attention");
    return "\"layer_types\":" + list.dump();
  };
  const auto gemma2 = [&](const std::string& kinds) { return read_text(with_keys(types(kinds), "gemma2")); };
  CHECK(gemma2("ssfs").full_attention_every == 3);
  CHECK(gemma2("ssss").full_attention_every == 0);
  CHECK(gemma2("ssss").window == 4096);
  CHECK(gemma2("ffff").window == 0);
  const auto gemma2_error = [&](const std::string& keys) { return error_of_text(with_keys(keys, "gemma2")); };
  CHECK(gemma2("fsfs").full_attention_blocks == std::vector<int64_t>{0, 2});
  CHECK(gemma2("fsfs").full_attention_every == 0);
  CHECK(gemma2_error(types("sss"))
            .ends_with("must be \"sliding_attention\" or \"full_attention\" for each of 4 layers"));
  CHECK(gemma2_error("\"sliding_window\":null," + types("sfsf"))
            .ends_with("must be full_attention in every layer"));
  CHECK(gemma2_error("\"use_bidirectional_attention\":true").starts_with("use_bidirectional_attention is"));
  CHECK(error_of_text(with_keys(types("ffff"), "mistral"))
            .ends_with("must be sliding_attention in every layer"));

  const auto smollm3 = [](const std::string& keys) { return read_text(with_keys(keys, "smollm3")); };
  CHECK(smollm3("\"no_rope_layers\":[1,1,0,1]").no_rope_every == 3);
  CHECK(smollm3("\"no_rope_layers\":[1,1,1,1,0]").no_rope_every == 0);
  CHECK(smollm3("\"no_rope_layers\":[0,0,0,0]").no_rope_every == 1);
  CHECK(smollm3("\"no_rope_layer_interval\":2").no_rope_every == 2);
  const auto smollm3_error = [](const std::string& keys) {
    return error_of_text(with_keys(keys, "smollm3"));
  };
  CHECK(smollm3("\"no_rope_layers\":[1,0,0,1]").no_rope_blocks == std::vector<int64_t>{1, 2});
  CHECK(smollm3("\"no_rope_layers\":[1,0,0,1]").no_rope_every == 0);
  for (const char* list : {"[1,0,1]", "[1,2,1,2]", "3"})
    CHECK(smollm3_error(str("\"no_rope_layers\":", list)).ends_with("must be 0 or 1 for each of 4 layers"));
  const std::string on = "\"use_sliding_window\":true,\"sliding_window\":16";
  // By default, layers without rotary positions have the window.
  CHECK(smollm3(on + ",\"no_rope_layers\":[1,0,0,1]").full_attention_blocks == std::vector<int64_t>{0, 3});
  CHECK(smollm3(on + ',' + types("sfsf")).window_of(0) == 16);
}

TEST_CASE("Gemma 3 has a base of its own for layers with a window, in both spellings") {
  const auto gemma3 = [](const std::string& keys) { return read_text(with_keys(keys, "gemma3_text")); };
  const ModelConfig absent = gemma3("");
  CHECK(absent.family == "gemma3");
  CHECK(absent.rope_theta == 1e6);
  CHECK(absent.window_rope_theta == 1e4);
  CHECK(absent.window == 4096);
  CHECK(absent.full_attention_every == 6);
  CHECK(absent.attention_softcap == 0.0);
  CHECK(absent.tied == true);
  CHECK(gemma3("\"sliding_window_pattern\":3").full_attention_every == 3);
  const ModelConfig old = gemma3(
      R"("rope_theta":5e5,"rope_local_base_freq":2e4,"rope_scaling":{"rope_type":"linear","factor":8})");
  const ModelConfig v5 = gemma3(
      R"("rope_parameters":{"full_attention":{"rope_type":"linear","factor":8,"rope_theta":5e5},
      "sliding_attention":{"rope_type":"default","rope_theta":2e4}})");
  for (const ModelConfig& c : {old, v5}) {
    CHECK(c.rope_theta == 5e5);
    CHECK(c.window_rope_theta == 2e4);
    CHECK(c.rope_scaling.kind == RopeScaling::Kind::linear);
    CHECK(c.rope_scaling.factor == 8);
  }
  const auto gemma3_error = [](const std::string& keys) {
    return error_of_text(with_keys(keys, "gemma3_text"));
  };
  CHECK(gemma3_error(R"("rope_parameters":{"sliding_attention":{"rope_type":"linear","factor":8}})")
            .ends_with("must be of type default for sliding_attention"));
  CHECK(gemma3_error(
            R"("rope_local_base_freq":3e4,"rope_parameters":{"sliding_attention":{"rope_theta":2e4}})") ==
        "rope_local_base_freq is 30000.0, must be equal to that of rope_parameters");
  ModelConfig c = absent;
  c.window_rope_theta = 0;
  CHECK(test::error_of([&] { hf_config_json(c, DType::f32); }).starts_with("model.window_rope_theta is 0"));
}

TEST_CASE("the keys of YaRN and longrope are read, with transformers' defaults, and written") {
  const auto yarn = [](const std::string& keys) {
    return read_text(with_keys(R"("rope_scaling":{"rope_type":"yarn")" + keys + '}')).rope_scaling;
  };
  const RopeScalingConfig absent = yarn(R"(,"original_max_position_embeddings":16)");
  CHECK(absent.kind == RopeScaling::Kind::yarn);
  CHECK(absent.factor == 4);  // 64 positions
  CHECK(absent.beta_fast == 32);
  CHECK(absent.beta_slow == 1);
  CHECK(absent.truncate);
  CHECK(absent.attention_factor == 0);
  const RopeScalingConfig given = yarn(
      R"(,"factor":8,"attention_factor":1.5,"beta_fast":4,"beta_slow":0.5,"mscale":2,"mscale_all_dim":3,)"
      R"("truncate":false)");
  CHECK(given == RopeScalingConfig{.kind = RopeScaling::Kind::yarn,
                                   .factor = 8,
                                   .original_max_positions = 64,
                                   .attention_factor = 1.5,
                                   .beta_fast = 4,
                                   .beta_slow = 0.5,
                                   .mscale = 2,
                                   .mscale_all_dim = 3,
                                   .truncate = false});
  const std::string factors = R"("short_factor":[1,2,3,4],"long_factor":[5,6,7,8]})";
  for (const char* name : {"longrope", "su", "yarn"}) {
    const ModelConfig c = read_text(with_keys(
        str(R"("original_max_position_embeddings":16,"rope_scaling":{"type":")", name, "\",", factors),
        "phi3"));
    CHECK(c.rope_scaling == RopeScalingConfig{.kind = RopeScaling::Kind::longrope,
                                              .factor = 4,
                                              .original_max_positions = 16,
                                              .short_factor = {1, 2, 3, 4},
                                              .long_factor = {5, 6, 7, 8}});
    const std::string text = hf_config_json(c, DType::f32);
    CHECK(text.find("\"factor\"") == std::string::npos);
    CHECK(read_text(text).rope_scaling == c.rope_scaling);
  }
  const auto phi3_error = [](const std::string& keys) { return error_of_text(with_keys(keys, "phi3")); };
  CHECK(phi3_error(R"("rope_scaling":{"type":"linear","factor":2})") ==
        "rope_scaling.type is \"linear\", must be default or longrope");
  CHECK(phi3_error(R"("rope_scaling":{"type":"su","short_factor":[1],"long_factor":[5]})") ==
        "rope_scaling.short_factor is [1], must be a list of 4 positive numbers");
  CHECK(phi3_error(R"("rope_scaling":{"type":"su","original_max_position_embeddings":32,)" + factors)
            .ends_with("must be 4096, the value for the whole file"));
}

TEST_CASE("longrope takes the long factors in a context beyond the original positions") {
  ModelConfig c = test::small_model("phi3");
  c.rope_scaling = {.kind = RopeScaling::Kind::longrope,
                    .factor = 4,
                    .original_max_positions = 16,
                    .short_factor = {1, 2},
                    .long_factor = {5, 6}};
  CHECK(c.scaling().divisors == c.rope_scaling.long_factor);  // 64 positions
  c.context = 16;
  CHECK(c.scaling().divisors == c.rope_scaling.short_factor);
  c.context = 17;
  CHECK(c.scaling().divisors == c.rope_scaling.long_factor);
  c.rope_scaling.short_factor = {1};
  CHECK(test::error_of([&] { resolved(c); }) ==
        "model.rope_scaling.short_factor has 1 factors, must have 2, one for each pair of rotated elements");
}

TEST_CASE(
    "the partial rotation, the biases of GLM-4 and the multipliers of Granite have transformers' defaults") {
  const ModelConfig glm4 = read_text(with_keys("\"head_dim\":8", "glm4"));
  CHECK(glm4.rotated_width() == 4);
  CHECK(glm4.interleaved_rope);
  CHECK(glm4.qkv_bias == true);
  CHECK(glm4.norm_eps == 1.5625e-7);
  CHECK(read_text(with_keys(R"("head_dim":8,"rope_parameters":{"partial_rotary_factor":0.25})", "glm4"))
            .rotated_width() == 2);
  CHECK(error_of_text(with_keys("\"head_dim\":6", "glm4")) ==
        "model.head_dim = 6 times model.partial_rotary_factor = 0.5 is 3, must be positive and even");
  CHECK(error_of_text(with_keys("\"partial_rotary_factor\":0.75")) ==
        "partial_rotary_factor is 0.75, must be 1");
  const ModelConfig granite = read_text(with_keys("", "granite"));
  CHECK(granite.attention_scale() == 1.0f);
  CHECK(granite.residual_multiplier == 1.0);
  CHECK(read_text(with_keys("\"logits_scaling\":16", "granite")).logit_divisor == 16);
  ModelConfig llama = test::small_model("llama");
  llama.residual_multiplier = 0.5;
  CHECK(test::error_of([&] {
          hf_config_json(llama, DType::f32);
        }).starts_with("model.residual_multiplier = 0.5 cannot be written"));
}

TEST_CASE("an unsupported setting is an error that names file and key") {
  CHECK(test::error_of([] { read_hf_config("no.json"); }) ==
        "no.json: cannot open: No such file or directory");
  CHECK(error_of_text("{").find("parse error") != std::string::npos);
  CHECK(error_of_text("[]") == "must be a JSON object");
  CHECK(error_of_text("{}") ==
        "model_type is missing, must be one of llama, mistral, qwen2, qwen3, gpt2, gemma2, gemma3_text, "
        "phi3, granite, glm4, olmo2, smollm3, qwen3_moe, qwen2_moe, mixtral, olmoe, granitemoe, glm4_moe, "
        "gpt_oss, "
        "idefics2, idefics3, smolvlm, qwen2_vl, qwen2_5_vl");
  CHECK(error_of_text(with_keys("", "bert")) ==
        "model_type is \"bert\", must be one of llama, mistral, qwen2, qwen3, gpt2, gemma2, gemma3_text, "
        "phi3, granite, glm4, olmo2, smollm3, qwen3_moe, qwen2_moe, mixtral, olmoe, granitemoe, glm4_moe, "
        "gpt_oss, "
        "idefics2, idefics3, smolvlm, qwen2_vl, qwen2_5_vl");
  CHECK(error_of_text("{\"model_type\":\"llama\"}") == "num_hidden_layers is missing");
  CHECK(error_of_text(with_keys("\"hidden_size\":0")) ==
        "hidden_size is 0, must be a whole number from 1 to 2147483647");
  CHECK(error_of_text(with_keys("\"hidden_size\":-5")).starts_with("hidden_size is -5"));
  CHECK(error_of_text(with_keys("\"hidden_size\":1e3")).starts_with("hidden_size is 1000.0"));
  CHECK(error_of_text(with_keys("\"num_key_value_heads\":3")) ==
        "model.kv_heads = 3 does not divide model.heads = 4");
  CHECK(error_of_text(with_keys("\"attention_bias\":true")).starts_with("attention_bias is true"));
  CHECK(error_of_text(with_keys("\"hidden_act\":\"gelu\"")) == "hidden_act is \"gelu\", must be silu");
  CHECK(error_of_text(with_keys("\"rms_norm_eps\":\"small\"")).starts_with("rms_norm_eps is \"small\""));
  CHECK(error_of_text(with_keys("\"tie_word_embeddings\":1")).starts_with("tie_word_embeddings is 1"));
  CHECK(error_of_text(with_keys("\"architectures\":[\"LlamaForTokenClassification\"]")) ==
        "architectures is [\"LlamaForTokenClassification\"], must be [\"LlamaForCausalLM\"]");
  CHECK(error_of_text(with_keys(R"("quantization_config": {"quant_method": "gptq", "bits": 4})"))
            .starts_with("quantization_config.quant_method is \"gptq\", must be \"bitsandbytes\""));
  CHECK(error_of_text(with_keys("\"quantization_config\": []")) == "quantization_config must be an object");
}

TEST_CASE("a config.json has the quantization of bitsandbytes, which can be replaced and removed") {
  std::ofstream(kPath) << with_keys("\"tie_word_embeddings\": true");
  CHECK(!read_quantization_config(kPath));
  const std::string member =
      quantization_config_json({.format = {.nested = true, .compute = DType::bf16}, .storage = DType::f16});
  const std::string text = with_keys("\"quantization_config\": " + member);
  CHECK(read_text(text).hidden == 32);
  CHECK(read_quantization_config(kPath)->format ==
        FourBitFormat{.kind = FourBitKind::nf4, .nested = true, .compute = DType::bf16});
  std::ofstream(kPath) << changed_hf_config(text, kPath, {.quantization = quantization_config_json({})});
  CHECK(read_quantization_config(kPath)->format.kind == FourBitKind::fp4);
  std::ofstream(kPath) << changed_hf_config(text, kPath, {.quantization = ""});
  CHECK(!read_quantization_config(kPath));
}

TEST_CASE("a config.json has no setting that a config.toml cannot express") {
  CHECK(error_of_text(with_keys(R"("rope_theta": 0.5)")) == "model.rope_theta is 0.5, must be at least 1");
  CHECK(error_of_text(with_keys(R"("rope_scaling": {"rope_type": "linear", "factor": 0.5})")) ==
        "model.rope_scaling.factor is 0.5, must be at least 1");
  CHECK(error_of_text(with_keys(R"("rms_norm_eps": 1e60)")) ==
        "model.norm_eps is 1e+60, must be at most 3.40282e+38");
}
