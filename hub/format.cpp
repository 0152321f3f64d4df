#include "hub/format.h"

#include <algorithm>
#include <numeric>

#include "runtime/check.h"
#include "runtime/json.h"

namespace flatshard {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr double kSwigluAlpha = 1.702;  // the only value that kernels/clamped_glu.h computes

std::string list_of(const std::vector<int64_t>& blocks) { return json_text(ordered_json(blocks)); }

std::vector<int64_t> first_blocks(int64_t count) {
  std::vector<int64_t> blocks(static_cast<size_t>(count));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

// Refuses settings that the format cannot express.
void check_can_be_written(const Format& format, const ModelConfig& c) {
  const Family& f = family(c.family);
  const auto fixed = [&](const char* key, auto value, auto only) {
    check(value == only, "model.", key, " = ", value,
          " cannot be written to a Hugging Face config of family ", c.family, ", where ", key, " is always ",
          only);
  };
  if (!format.qkv_bias || f.linear_bias) fixed("qkv_bias", *c.qkv_bias, f.qkv_bias);
  if (!format.qk_norm) fixed("qk_norm", *c.qk_norm, f.qk_norm);
  if (!format.window) fixed("window", *c.window, int64_t{0});
  if (!format.layer_types && *c.window > 0) {
    fixed("full_attention_every", *c.full_attention_every, int64_t{0});
    fixed("full_attention_blocks", list_of(c.full_attention_blocks), std::string("[]"));
  }
  if (!format.no_rope_layers) {
    fixed("no_rope_every", *c.no_rope_every, int64_t{0});
    fixed("no_rope_blocks", list_of(c.no_rope_blocks), std::string("[]"));
  }
  if (!format.window_rope) fixed("window_rope_theta", *c.window_rope_theta, 0.0);
  check(!format.window_rope || *c.window_rope_theta > 0,
        "model.window_rope_theta is 0, which cannot be written to a Hugging Face config of family ", c.family,
        "; set the RoPE base of blocks with a window");
  if (format.only_longrope && c.rope_scaling.kind != RopeScaling::Kind::longrope)
    fixed("rope_scaling.kind", c.rope_scaling.kind, RopeScaling::Kind::none);
  if (f.rope_axes) fixed("rope_scaling.kind", c.rope_scaling.kind, RopeScaling::Kind::none);
  if (!format.partial_rotary) fixed("partial_rotary_factor", *c.partial_rotary_factor, 1.0);
  if (!format.multipliers) {
    fixed("embedding_multiplier", c.embedding_multiplier, 1.0);
    fixed("residual_multiplier", c.residual_multiplier, 1.0);
    fixed("attention_multiplier", *c.attention_multiplier, 0.0);
    fixed("logit_divisor", c.logit_divisor, 1.0);
  }
  if (!format.softcaps) {
    fixed("attention_softcap", *c.attention_softcap, 0.0);
    fixed("logit_softcap", *c.logit_softcap, 0.0);
  }
  if (format.query_scalar == 0 && !format.multipliers) fixed("query_scalar", c.query_scalar, c.head_dim);
  if (c.positions == PositionKind::learned) {
    fixed("kv_heads", c.kv_heads, c.heads);
    fixed("head_dim * heads", c.head_dim * c.heads, c.hidden);
  }
  if (format.experts && !format.expert_ffn) {
    fixed("ffn", c.ffn, c.expert_ffn);
    fixed("dense_blocks", list_of(c.dense_blocks), std::string("[]"));
  }
  if (format.groups) {
    fixed("dense_blocks", list_of(c.dense_blocks), list_of(first_blocks(std::ssize(c.dense_blocks))));
    check(c.shared_ffn % c.expert_ffn == 0, "model.shared_ffn = ", c.shared_ffn,
          " cannot be written to a Hugging Face config of family ", c.family,
          ", where it is a multiple of model.expert_ffn = ", c.expert_ffn);
  }
  if (!format.norm_topk) fixed("norm_topk", *c.norm_topk, f.norm_topk);
  check(c.max_positions > 0, "model.max_positions is ", c.max_positions, ", must be positive");
}

void write_groups(ordered_json& out, const ModelConfig& c) {
  out["n_shared_experts"] = c.shared_ffn / c.expert_ffn;
  out["first_k_dense_replace"] = c.dense_blocks.size();
  out["n_group"] = c.expert_groups;
  out["topk_group"] = c.top_groups;
  out["routed_scaling_factor"] = c.routed_scale;
  out["norm_topk_prob"] = *c.norm_topk;
  out["num_nextn_predict_layers"] = 0;
}

void write_experts(ordered_json& out, const Format& format, const ModelConfig& c) {
  out[format.experts] = c.experts;
  out["num_experts_per_tok"] = c.experts_per_token;
  if (format.expert_ffn) {
    out["moe_intermediate_size"] = c.expert_ffn;
    if (format.groups) return write_groups(out, c);
    out["decoder_sparse_step"] = 1;
    out["mlp_only_layers"] = c.dense_blocks;
  }
  if (format.norm_topk) out["norm_topk_prob"] = *c.norm_topk;
  if (format.shared_expert) out["shared_expert_intermediate_size"] = c.shared_ffn;
  if (format.swiglu_limit) {
    out["experts_per_token"] = c.experts_per_token;
    out["swiglu_alpha"] = kSwigluAlpha;
    out["swiglu_limit"] = *c.swiglu_limit;
  }
  out["output_router_logits"] = c.router_aux_loss > 0;
  out["router_aux_loss_coef"] = c.router_aux_loss;
}

// The blocks without experts: a list, and all but every n-th.
std::vector<int64_t> read_dense_blocks(const JsonReader& in, int64_t layers) {
  const int64_t every = in.size("decoder_sparse_step", 1);
  const json listed = in.has("mlp_only_layers") ? in.value("mlp_only_layers") : json::array();
  in.must(listed.is_array() &&
              std::all_of(listed.begin(), listed.end(),
                          [&](const json& i) { return i.is_number_integer() && i >= 0 && i < layers; }),
          "mlp_only_layers", str("a list of layers from 0 to ", layers - 1));
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < layers; ++i)
    if ((i + 1) % every != 0 || std::find(listed.begin(), listed.end(), i) != listed.end())
      blocks.push_back(i);
  return blocks;
}

void read_groups(const JsonReader& in, ModelConfig& c) {
  c.shared_ffn = in.size("n_shared_experts", 1) * c.expert_ffn;
  constexpr const char* kDense = "first_k_dense_replace";
  c.dense_blocks = first_blocks(in.has(kDense) ? in.whole(kDense, 0, c.layers) : 1);
  c.expert_groups = in.size("n_group", 1);
  c.top_groups = in.size("topk_group", 1);
  c.routed_scale = in.positive("routed_scaling_factor", 1);
}

void read_experts(const JsonReader& in, const Format& format, ModelConfig& c) {
  const Family& f = family(c.family);
  // Files of transformers 5 have either key.
  const char* const count = format.groups                 ? format.experts
                            : in.has("num_local_experts") ? "num_local_experts"
                                                          : "num_experts";
  c.experts = in.size(count);
  c.experts_per_token = in.size("num_experts_per_tok");
  c.expert_ffn = format.expert_ffn ? in.size("moe_intermediate_size") : c.ffn;
  if (format.groups)
    read_groups(in, c);
  else if (format.expert_ffn)
    c.dense_blocks = read_dense_blocks(in, c.layers);
  if (format.norm_topk) c.norm_topk = in.flag("norm_topk_prob", f.norm_topk);
  if (format.shared_expert) c.shared_ffn = in.size("shared_expert_intermediate_size");
  in.must(in.flag("qkv_bias", f.qkv_bias) == f.qkv_bias, "qkv_bias", f.qkv_bias ? "true" : "false");
  in.must(format.window || !in.flag("use_sliding_window", false), "use_sliding_window",
          "false: other values are not supported");
  in.must(in.is_null("clip_qkv") || !in.has("clip_qkv"), "clip_qkv", "null: other values are not supported");
  in.must(!in.has("router_jitter_noise") || in.value("router_jitter_noise") == 0, "router_jitter_noise",
          "0: other values are not supported");
  if (in.flag("output_router_logits", false)) c.router_aux_loss = in.positive("router_aux_loss_coef");
}

// The keys of gpt_oss.
void read_limit(const JsonReader& in, ModelConfig& c) {
  c.swiglu_limit = in.positive("swiglu_limit", family(c.family).swiglu_limit);
  in.must(in.positive("swiglu_alpha", kSwigluAlpha) == kSwigluAlpha, "swiglu_alpha",
          str(kSwigluAlpha, ": other values are not supported"));
  in.must(*c.qkv_bias, "attention_bias", "true: other values are not supported");
  in.must(in.size("experts_per_token", c.experts_per_token) == c.experts_per_token, "experts_per_token",
          str(c.experts_per_token, ", as num_experts_per_tok"));
}

const char* activation_of(MlpKind mlp) { return mlp == MlpKind::geglu ? "gelu_pytorch_tanh" : "silu"; }

void write_gpt2(ordered_json& out, const ModelConfig& c) {
  out["vocab_size"] = c.vocab;
  out["n_positions"] = c.max_positions;
  out["n_embd"] = c.hidden;
  out["n_layer"] = c.layers;
  out["n_head"] = c.heads;
  out["n_inner"] = c.ffn;
  out["activation_function"] = "gelu_new";
  out["layer_norm_epsilon"] = *c.norm_eps;
  for (const char* dropout : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) out[dropout] = 0.0;
}

void write_rotary(ordered_json& out, const ModelConfig& c, const Format& format) {
  out["vocab_size"] = c.vocab;
  out["hidden_size"] = c.hidden;
  out["intermediate_size"] = c.ffn;
  out["num_hidden_layers"] = c.layers;
  out["num_attention_heads"] = c.heads;
  out["num_key_value_heads"] = c.kv_heads;
  out["head_dim"] = c.head_dim;
  out[format.activation] = activation_of(c.mlp);
  out["max_position_embeddings"] = c.max_positions;
  out["rms_norm_eps"] = *c.norm_eps;
  write_rope(out, format, c);
  if (format.qk_norm) out["use_qk_norm"] = *c.qk_norm;
  if (format.attention_bias) out["attention_bias"] = format.qkv_bias && *c.qkv_bias;
  write_layers(out, format, c);
  if (format.query_scalar > 0) out["query_pre_attn_scalar"] = c.query_scalar;
  if (format.multipliers) {
    const double attention = *c.attention_multiplier;
    out["embedding_multiplier"] = c.embedding_multiplier;
    out["residual_multiplier"] = c.residual_multiplier;
    out["attention_multiplier"] = attention > 0 ? attention : c.attention_scale();
    out["logits_scaling"] = c.logit_divisor;
  }
  if (format.softcaps) {
    const auto or_null = [](double cap) { return cap > 0 ? ordered_json(cap) : ordered_json(nullptr); };
    out["attn_logit_softcapping"] = or_null(*c.attention_softcap);
    out["final_logit_softcapping"] = or_null(*c.logit_softcap);
  }
  if (format.experts) write_experts(out, format, c);
  out["attention_dropout"] = 0.0;
}

ModelConfig read_rotary(const JsonReader& in, const Format& format) {
  const Family& f = family(format.family);
  ModelConfig c{.family = format.family,
                .layers = in.size("num_hidden_layers"),
                .hidden = in.size("hidden_size"),
                .heads = in.size("num_attention_heads"),
                .ffn = in.size("intermediate_size"),
                .vocab = in.size("vocab_size"),
                .max_positions = in.size("max_position_embeddings"),
                .tied = in.flag("tie_word_embeddings", f.tied),
                .norm_eps = in.positive("rms_norm_eps", f.norm_eps)};
  // null means as many key-value heads as heads; a missing key means the family's default.
  const bool as_heads = in.is_null("num_key_value_heads") || format.kv_heads == 0;
  c.kv_heads = in.size("num_key_value_heads", as_heads ? c.heads : format.kv_heads);
  c.head_dim = in.size("head_dim", format.head_dim);
  const std::string activation = activation_of(f.mlp);
  in.must(in.text(format.activation, activation) == activation, format.activation, activation);
  if (format.qk_norm) c.qk_norm = in.flag("use_qk_norm", f.qk_norm);
  if (format.qkv_bias) c.qkv_bias = in.flag("attention_bias", f.qkv_bias);
  for (const char* key : {"attention_bias", "mlp_bias", "use_bidirectional_attention"})
    in.must((format.qkv_bias && key == std::string("attention_bias")) || !in.flag(key, false), key,
            "false: other values are not supported");
  read_rope(in, format, c);
  read_layers(in, format, c);
  if (format.query_scalar > 0) c.query_scalar = in.size("query_pre_attn_scalar", format.query_scalar);
  if (format.multipliers) {
    c.embedding_multiplier = in.positive("embedding_multiplier", 1);
    c.residual_multiplier = in.positive("residual_multiplier", 1);
    c.attention_multiplier = in.positive("attention_multiplier", 1);
    c.logit_divisor = in.positive("logits_scaling", 1);
  }
  if (format.softcaps) {
    const auto cap = [&](const char* key, double absent) {
      return in.is_null(key) ? 0 : in.positive(key, absent);
    };
    c.attention_softcap = cap("attn_logit_softcapping", f.attention_softcap);
    c.logit_softcap = cap("final_logit_softcapping", f.logit_softcap);
  }
  if (format.experts) read_experts(in, format, c);
  if (format.swiglu_limit) read_limit(in, c);
  return c;
}

ModelConfig read_gpt2(const JsonReader& in) {
  ModelConfig c{.family = "gpt2",
                .layers = in.size("n_layer"),
                .hidden = in.size("n_embd"),
                .heads = in.size("n_head"),
                .vocab = in.size("vocab_size"),
                .max_positions = in.size("n_positions"),
                .tied = in.flag("tie_word_embeddings", true),
                .norm_eps = in.positive("layer_norm_epsilon", 1e-5)};
  c.ffn = in.size("n_inner", 4 * c.hidden);
  const std::string activation = in.text("activation_function", "gelu_new");
  in.must(activation == "gelu_new" || activation == "gelu_pytorch_tanh", "activation_function",
          "gelu_new or gelu_pytorch_tanh");
  in.must(in.flag("scale_attn_weights", true), "scale_attn_weights", "true");
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    in.must(!in.flag(key, false), key, "false");
  return c;
}

}  // namespace

const std::vector<Format>& formats() {
  static const std::vector<Format> rows{
      {.family = "llama", .architecture = "LlamaForCausalLM", .attention_bias = true},
      {.family = "mistral", .architecture = "MistralForCausalLM", .kv_heads = 8, .window = 4096},
      {.family = "qwen2",
       .architecture = "Qwen2ForCausalLM",
       .kv_heads = 32,
       .window = 4096,
       .window_switch = true,
       .max_window_layers = true,
       .layer_types = true},
      {.family = "qwen3",
       .architecture = "Qwen3ForCausalLM",
       .kv_heads = 32,
       .head_dim = 128,
       .attention_bias = true,
       .window = 4096,
       .window_switch = true,
       .max_window_layers = true,
       .layer_types = true},
      {.family = "gpt2", .architecture = "GPT2LMHeadModel"},
      {.family = "gemma2",
       .architecture = "Gemma2ForCausalLM",
       .kv_heads = 4,
       .head_dim = 256,
       .attention_bias = true,
       .activation = "hidden_activation",
       .window = 4096,
       .layer_types = true,
       .query_scalar = 256,
       .softcaps = true},
      {.family = "gemma3",
       .architecture = "Gemma3ForCausalLM",
       .model_type = "gemma3_text",
       .kv_heads = 4,
       .head_dim = 256,
       .attention_bias = true,
       .activation = "hidden_activation",
       .window = 4096,
       .window_pattern = true,
       .window_rope = true,
       .layer_types = true,
       .query_scalar = 256,
       .softcaps = true},
      {.family = "phi3",
       .architecture = "Phi3ForCausalLM",
       .only_longrope = true,
       .original_positions = 4096,
       .partial_rotary = true,
       .window = 0},
      {.family = "granite",
       .architecture = "GraniteForCausalLM",
       .attention_bias = true,
       .multipliers = true},
      {.family = "glm4",
       .architecture = "Glm4ForCausalLM",
       .kv_heads = 2,
       .head_dim = 128,
       .attention_bias = true,
       .qkv_bias = true,
       .partial_rotary = true},
      {.family = "olmo2", .architecture = "Olmo2ForCausalLM", .attention_bias = true},
      {.family = "smollm3",
       .architecture = "SmolLM3ForCausalLM",
       .kv_heads = 4,
       .attention_bias = true,
       .window = 0,
       .window_switch = true,
       .layer_types = true,
       .no_rope_layers = true},
      {.family = "qwen3_moe",
       .architecture = "Qwen3MoeForCausalLM",
       .kv_heads = 4,
       .attention_bias = true,
       .window = 4096,
       .window_switch = true,
       .experts = "num_experts",
       .expert_ffn = true,
       .norm_topk = true},
      {.family = "qwen2_moe",
       .architecture = "Qwen2MoeForCausalLM",
       .kv_heads = 16,
       .experts = "num_experts",
       .expert_ffn = true,
       .norm_topk = true,
       .shared_expert = true},
      {.family = "mixtral",
       .architecture = "MixtralForCausalLM",
       .kv_heads = 8,
       .window = 0,
       .experts = "num_local_experts"},
      {.family = "olmoe",
       .architecture = "OlmoeForCausalLM",
       .attention_bias = true,
       .experts = "num_experts",
       .norm_topk = true},
      {.family = "granitemoe",
       .architecture = "GraniteMoeForCausalLM",
       .attention_bias = true,
       .multipliers = true,
       .experts = "num_local_experts"},
      {.family = "glm4_moe",
       .architecture = "Glm4MoeForCausalLM",
       .kv_heads = 8,
       .attention_bias = true,
       .qkv_bias = true,
       .partial_rotary = true,
       .experts = "n_routed_experts",
       .expert_ffn = true,
       .norm_topk = true,
       .qk_norm = true,
       .groups = true},
      {.family = "gpt_oss",
       .architecture = "GptOssForCausalLM",
       .kv_heads = 8,
       .head_dim = 64,
       .attention_bias = true,
       .qkv_bias = true,
       .window = 128,
       .layer_types = true,
       .experts = "num_local_experts",
       .swiglu_limit = true,
       .scaled_by_default = true},
      {.family = "idefics2",
       .architecture = "Idefics2ForConditionalGeneration",
       .kv_heads = 8,
       .window = 4096,
       .text_type = "mistral"},
      {.family = "idefics3",
       .architecture = "Idefics3ForConditionalGeneration",
       .attention_bias = true,
       .text_type = "llama"},
      {.family = "smolvlm",
       .architecture = "SmolVLMForConditionalGeneration",
       .attention_bias = true,
       .text_type = "llama"},
      {.family = "qwen2_vl",
       .architecture = "Qwen2VLForConditionalGeneration",
       .kv_heads = 8,
       .window = 4096,
       .window_switch = true,
       .max_window_layers = true,
       .layer_types = true,
       .text_type = "qwen2_vl_text"},
      {.family = "qwen2_5_vl",
       .architecture = "Qwen2_5_VLForConditionalGeneration",
       .kv_heads = 8,
       .window = 4096,
       .window_switch = true,
       .max_window_layers = true,
       .layer_types = true,
       .text_type = "qwen2_5_vl_text"},
  };
  return rows;
}

const Format& format_of(const std::string& family) {
  return *std::find_if(formats().begin(), formats().end(),
                       [&](const Format& f) { return f.family == family; });
}

const Format* find_format(const std::string& model_type) {
  const auto found = std::find_if(formats().begin(), formats().end(),
                                  [&](const Format& f) { return f.model_type == model_type; });
  return found == formats().end() ? nullptr : &*found;
}

ModelConfig read_family(const JsonReader& in, const Format& format) {
  return format.text_type ? read_vision_model(in, format) : read_text(in, format);
}

void write_family(ordered_json& out, const Format& format, const ModelConfig& c) {
  check_can_be_written(format, c);
  format.text_type ? write_vision_model(out, format, c) : write_text(out, format, c);
}

ModelConfig read_text(const JsonReader& in, const Format& format) {
  const bool learned = family(format.family).positions == PositionKind::learned;
  return learned ? read_gpt2(in) : read_rotary(in, format);
}

void write_text(ordered_json& out, const Format& format, const ModelConfig& c) {
  if (c.positions == PositionKind::learned)
    write_gpt2(out, c);
  else
    write_rotary(out, c, format);
}

}  // namespace flatshard
