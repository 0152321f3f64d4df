#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/route.h"
#include "runtime/problems.h"

namespace flatshard {
namespace {

// Tokens and positions are 32 bits wide. The other bounds are far above any real model; they keep parameter
// counts within 64 bits and the memory plan of the largest model fast.
constexpr int64_t kMaxSize = INT32_MAX, kMaxWidth = 1 << 20, kMaxFfn = 4 * kMaxWidth, kMaxLayers = 4096;
constexpr double kMostFloat = std::numeric_limits<float>::max();

// Checks a list of blocks, which replaces every n-th.
void check_blocks(Problems& problems, const std::string& name, const std::vector<int64_t>& blocks,
                  int64_t every, int64_t layers) {
  problems.check(blocks.empty() || every == 0, "model.", name, "_blocks is set and model.", name,
                 "_every is ", every, "; set one of them");
  for (size_t i = 0; i < blocks.size(); ++i) {
    problems.check(blocks[i] >= 0 && blocks[i] < layers, "model.", name, "_blocks has ", blocks[i],
                   ", must be from 0 to ", layers - 1, ", the blocks of model.layers = ", layers);
    problems.check(i == 0 || blocks[i] > blocks[i - 1], "model.", name, "_blocks has ", blocks[i], " after ",
                   i == 0 ? 0 : blocks[i - 1], ", must ascend");
  }
}

void check_scaling(Problems& problems, const RopeScalingConfig& s) {
  const std::string section = "model.rope_scaling.";
  problems.check(s.factor >= 1, section, "factor is ", s.factor, ", must be at least 1");
  const int64_t least = s.kind == RopeScaling::Kind::longrope ? 2 : 1;
  problems.check(s.original_max_positions >= least, section, "original_max_positions is ",
                 s.original_max_positions, ", must be at least ", least);
  for (const auto& [key, value] : {std::pair<const char*, double>{"attention_factor", s.attention_factor},
                                   {"mscale", s.mscale},
                                   {"mscale_all_dim", s.mscale_all_dim}})
    problems.check(value >= 0 && value <= kMostFloat, section, key, " is ", value, ", must be from 0 to ",
                   kMostFloat);
  problems.check(s.beta_slow > 0 && s.beta_slow <= s.beta_fast && s.beta_fast <= kMostFloat, section,
                 "beta_slow is ", s.beta_slow, ", must be positive and at most beta_fast = ", s.beta_fast);
}

void check_factors(Problems& problems, const char* key, const std::vector<double>& factors, int64_t count) {
  problems.check(std::ssize(factors) == count, "model.rope_scaling.", key, " has ", factors.size(),
                 " factors, must have ", count, ", one for each pair of rotated elements");
  for (const double factor : factors)
    problems.check(factor > 0 && factor <= kMostFloat, "model.rope_scaling.", key, " has ", factor,
                   ", must be positive and at most ", kMostFloat);
}

void check_rotation(Problems& problems, const ModelConfig& c) {
  if (c.positions != PositionKind::rotary) return;
  if (!problems.check(c.head_dim % 2 == 0, "model.head_dim = ", c.head_dim,
                      " must be even for rotary positions"))
    return;
  const int64_t width = c.rotated_width();
  problems.check(width > 0 && width % 2 == 0, "model.head_dim = ", c.head_dim,
                 " times model.partial_rotary_factor = ", *c.partial_rotary_factor, " is ", width,
                 ", must be positive and even");
  if (family(c.family).rope_axes) {
    const auto& [time, row, column] = c.rope_sections;
    problems.check(time > 0 && row > 0 && column > 0 && time + row + column == width / 2,
                   "model.rope_sections = ", time, ", ", row, ", ", column,
                   " must be positive and add up to ", width / 2, ", the pairs of rotated elements");
  }
  if (c.rope_scaling.kind != RopeScaling::Kind::longrope) return;
  check_factors(problems, "short_factor", c.rope_scaling.short_factor, width / 2);
  check_factors(problems, "long_factor", c.rope_scaling.long_factor, width / 2);
}

void check_vision(Problems& problems, const ModelConfig& c) {
  if (!c.vision) return;
  const VisionConfig& v = *c.vision;
  const auto within = [&](const char* key, int64_t value, int64_t max) {
    return problems.check(value > 0 && value <= max, "model.vision.", key, " is ", value,
                          ", must be from 1 to ", max);
  };
  within("layers", v.layers, kMaxLayers);
  within("ffn", v.ffn, kMaxFfn);
  if (within("hidden", v.hidden, kMaxWidth) && within("heads", v.heads, kMaxWidth))
    problems.check(v.hidden % v.heads == 0, "model.vision.heads = ", v.heads,
                   " does not divide model.vision.hidden = ", v.hidden);
  constexpr int64_t kMostPatch = 512, kMostImage = 1 << 16, kMostScale = 64;
  if (v.tower.rotary) {
    within("patch_size", v.patch_size, kMostPatch);
    within("repeats", v.repeats, kMostScale);
    problems.check(v.heads <= 0 || v.hidden / v.heads % 4 == 0, "model.vision.hidden = ", v.hidden,
                   " by model.vision.heads = ", v.heads,
                   " must be a multiple of 4, to rotate by row and column");
    problems.check(v.window >= 0 && v.window <= kMostImage, "model.vision.window is ", v.window,
                   ", must be 0 (none), or at most ", kMostImage);
    check_blocks(problems, "vision.full_attention", v.full_attention_blocks, 0, v.layers);
  } else if (within("patch_size", v.patch_size, kMostPatch) && within("image_size", v.image_size, kMostImage))
    problems.check(v.image_size >= v.patch_size, "model.vision.image_size = ", v.image_size,
                   " is less than model.vision.patch_size = ", v.patch_size);
  problems.check(v.norm_eps >= 0 && v.norm_eps <= kMostFloat, "model.vision.norm_eps is ", v.norm_eps,
                 ", must be from 0 to ", kMostFloat);
  problems.check(v.image_token >= 0 && v.image_token < c.vocab, "model.vision.image_token is ", v.image_token,
                 ", must be from 0 to ", c.vocab - 1, ", below model.vocab");
  if (v.connector != ConnectorKind::perceiver) {
    within("scale", v.scale, kMostScale);
    return;
  }
  const PerceiverConfig& p = v.perceiver;
  within("perceiver.latents", p.latents, kMaxWidth);
  within("perceiver.layers", p.layers, kMaxLayers);
  within("perceiver.head_dim", p.head_dim, kMaxWidth);
  problems.check(p.norm_eps >= 0 && p.norm_eps <= kMostFloat, "model.vision.perceiver.norm_eps is ",
                 p.norm_eps, ", must be from 0 to ", kMostFloat);
  if (within("perceiver.heads", p.heads, kMaxWidth) && within("perceiver.kv_heads", p.kv_heads, kMaxWidth))
    problems.check(p.heads % p.kv_heads == 0, "model.vision.perceiver.kv_heads = ", p.kv_heads,
                   " does not divide model.vision.perceiver.heads = ", p.heads);
}

// How experts are chosen by sigmoid.
void check_groups(Problems& problems, const ModelConfig& c) {
  if (!family(c.family).sigmoid_router) {
    problems.check(
        c.routed_scale == 1 && c.expert_groups == 1 && c.top_groups == 1,
        "model.routed_scale, model.expert_groups and model.top_groups have no meaning with model.family = ",
        c.family, ": remove them");
    return;
  }
  problems.check(c.routed_scale > 0 && c.routed_scale <= kMostFloat, "model.routed_scale is ", c.routed_scale,
                 ", must be positive");
  const int64_t most = std::min(kMostRouteGroups, c.experts / 2);
  if (!problems.check(c.expert_groups == 1 || (c.expert_groups >= 1 && c.expert_groups <= most &&
                                               c.experts % c.expert_groups == 0),
                      "model.expert_groups is ", c.expert_groups, ", must divide model.experts = ", c.experts,
                      " into at most ", kMostRouteGroups, " groups of at least two"))
    return;
  if (problems.check(c.top_groups >= 1 && c.top_groups <= c.expert_groups, "model.top_groups is ",
                     c.top_groups, ", must be from 1 to model.expert_groups = ", c.expert_groups))
    problems.check(c.experts / c.expert_groups * c.top_groups >= c.experts_per_token,
                   "model.top_groups = ", c.top_groups, " of ", c.expert_groups, " groups have ",
                   c.experts / c.expert_groups * c.top_groups,
                   " experts, fewer than model.experts_per_token = ", c.experts_per_token);
}

void check_experts(Problems& problems, const ModelConfig& c) {
  if (!family(c.family).experts) {
    const auto none = [&](const char* key, bool is_set) {
      problems.check(
          !is_set, "model.", key, " is set, but model.family = ", c.family,
          " has no experts: take qwen3_moe, qwen2_moe, mixtral, olmoe, granitemoe, glm4_moe or gpt_oss, or "
          "remove it");
    };
    none("experts", c.experts != 0);
    none("experts_per_token", c.experts_per_token != 0);
    none("expert_ffn", c.expert_ffn != 0);
    none("norm_topk", *c.norm_topk);
    none("shared_ffn", c.shared_ffn != 0);
    none("routed_scale", c.routed_scale != 1);
    none("expert_groups", c.expert_groups != 1);
    none("top_groups", c.top_groups != 1);
    none("dense_blocks", !c.dense_blocks.empty());
    none("swiglu_limit", *c.swiglu_limit != 0);
    return;
  }
  constexpr int64_t kMostExperts = 1 << 12, kBlock = 256;
  problems.check(c.experts >= 1 && c.experts <= kMostExperts, "model.experts is ", c.experts,
                 ", must be from 1 to ", kMostExperts, " with model.family = ", c.family);
  problems.check(c.experts_per_token >= 1 && c.experts_per_token <= c.experts, "model.experts_per_token is ",
                 c.experts_per_token, ", must be from 1 to model.experts = ", c.experts);
  if (problems.check(c.expert_ffn > 0 && c.expert_ffn <= kMaxFfn, "model.expert_ffn is ", c.expert_ffn,
                     ", must be from 1 to ", kMaxFfn))
    problems.check(c.expert_ffn * c.hidden % kBlock == 0, "model.expert_ffn = ", c.expert_ffn,
                   " times model.hidden = ", c.hidden, " must be a multiple of ", kBlock,
                   ", a block of 8-bit moments");
  check_blocks(problems, "dense", c.dense_blocks, 0, c.layers);
  if (family(c.family).shared_expert)
    problems.check(c.shared_ffn > 0 && c.shared_ffn <= kMaxFfn, "model.shared_ffn is ", c.shared_ffn,
                   ", must be from 1 to ", kMaxFfn, " with model.family = ", c.family);
  else
    problems.check(c.shared_ffn == 0, "model.shared_ffn = ", c.shared_ffn, ", but model.family = ", c.family,
                   " has no expert that all tokens share: take qwen2_moe or glm4_moe, or set it to 0");
  check_groups(problems, c);
  if (c.mlp == MlpKind::clamped_glu)
    problems.check(*c.swiglu_limit > 0 && *c.swiglu_limit <= kMostFloat, "model.swiglu_limit is ",
                   *c.swiglu_limit, ", must be positive");
  else
    problems.check(*c.swiglu_limit == 0, "model.swiglu_limit has no meaning with model.family = ", c.family,
                   ": remove it");
  problems.check(!c.linear_bias || (*c.qkv_bias && c.dense_blocks.empty()), "model.qkv_bias = ", *c.qkv_bias,
                 " and ", c.dense_blocks.size(), " model.dense_blocks: every block of ", c.family,
                 " has biases and experts: remove both keys");
}

// Reports every value that is out of bounds; if there is none, every value that does not fit the others.
void check_model(const ModelConfig& c) {
  Problems problems;
  const auto at_most = [&](const char* key, int64_t value, int64_t max) {
    problems.check(value <= max, "model.", key, " is ", value, ", must be at most ", max);
  };
  const auto positive = [&](const char* key, int64_t value, int64_t max) {
    problems.check(value > 0, "model.", key, " is ", value, ", must be positive");
    at_most(key, value, max);
  };
  positive("layers", c.layers, kMaxLayers);
  positive("hidden", c.hidden, kMaxWidth);
  positive("heads", c.heads, kMaxWidth);
  positive("vocab", c.vocab, kMaxSize);
  if (problems.empty()) {  // these defaults follow from the values above
    positive("kv_heads", c.kv_heads, kMaxWidth);
    positive("head_dim", c.head_dim, kMaxWidth);
    positive("ffn", c.ffn, kMaxFfn);
    positive("query_scalar", c.query_scalar, kMaxSize);
  }
  at_most("max_positions", c.max_positions, kMaxSize);
  at_most("window", *c.window, kMaxSize);
  for (const auto& [key, value] : {std::pair<const char*, double>{"window", *c.window},
                                   {"full_attention_every", *c.full_attention_every},
                                   {"no_rope_every", *c.no_rope_every},
                                   {"attention_softcap", *c.attention_softcap},
                                   {"logit_softcap", *c.logit_softcap},
                                   {"attention_multiplier", *c.attention_multiplier}})
    problems.check(value >= 0, "model.", key, " is ", value, ", must be 0 (none) or positive");
  for (const auto& [key, value] : {std::pair<const char*, double>{"norm_eps", *c.norm_eps},
                                   {"attention_softcap", *c.attention_softcap},
                                   {"logit_softcap", *c.logit_softcap},
                                   {"attention_multiplier", *c.attention_multiplier},
                                   {"embedding_multiplier", c.embedding_multiplier},
                                   {"residual_multiplier", c.residual_multiplier},
                                   {"logit_divisor", c.logit_divisor}})
    problems.check(value <= kMostFloat, "model.", key, " is ", value, ", must be at most ", kMostFloat);
  for (const auto& [key, value] :
       {std::pair<const char*, double>{"embedding_multiplier", c.embedding_multiplier},
        {"residual_multiplier", c.residual_multiplier},
        {"logit_divisor", c.logit_divisor}})
    problems.check(value > 0, "model.", key, " is ", value, ", must be positive");
  problems.check(*c.partial_rotary_factor > 0 && *c.partial_rotary_factor <= 1,
                 "model.partial_rotary_factor is ", *c.partial_rotary_factor,
                 ", must be above 0 and at most 1");
  problems.check(*c.norm_eps >= 0, "model.norm_eps is ", *c.norm_eps, ", must be at least 0");
  problems.check(*c.rope_theta >= 1, "model.rope_theta is ", *c.rope_theta, ", must be at least 1");
  problems.check(*c.window_rope_theta == 0 || *c.window_rope_theta >= 1, "model.window_rope_theta is ",
                 *c.window_rope_theta, ", must be 0 (that of all blocks) or at least 1");
  check_blocks(problems, "full_attention", c.full_attention_blocks, *c.full_attention_every, c.layers);
  check_blocks(problems, "no_rope", c.no_rope_blocks, *c.no_rope_every, c.layers);
  check_scaling(problems, c.rope_scaling);
  problems.check(c.rope_scaling.kind != RopeScaling::Kind::yarn || *c.rope_theta > 1, "model.rope_theta is ",
                 *c.rope_theta, ", must be above 1 with model.rope_scaling.kind = \"yarn\"");
  problems.raise();
  problems.check(c.heads * c.head_dim <= kMaxWidth, "model.heads = ", c.heads,
                 " times model.head_dim = ", c.head_dim, " is ", c.heads * c.head_dim, ", must be at most ",
                 kMaxWidth);
  problems.check(c.heads % c.kv_heads == 0, "model.kv_heads = ", c.kv_heads,
                 " does not divide model.heads = ", c.heads);
  check_rotation(problems, c);
  check_vision(problems, c);
  check_experts(problems, c);
  problems.raise();
}

bool is_nth(int64_t every, int64_t block) { return every > 0 && (block + 1) % every == 0; }

double default_attention_factor(const RopeScalingConfig& s) {
  const auto of_yarn = [&](double mscale) {
    return s.factor > 1 ? 0.1 * mscale * std::log(s.factor) + 1 : 1;
  };
  if (s.kind == RopeScaling::Kind::yarn)
    return s.mscale > 0 && s.mscale_all_dim > 0 ? of_yarn(s.mscale) / of_yarn(s.mscale_all_dim) : of_yarn(1);
  if (s.kind == RopeScaling::Kind::longrope && s.factor > 1)
    return std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_max_positions)));
  return 1;
}

bool has(const std::vector<int64_t>& blocks, int64_t block) {
  return std::binary_search(blocks.begin(), blocks.end(), block);
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> rows{
      {.name = "llama"},
      {.name = "mistral", .window = 4096},
      {.name = "qwen2", .qkv_bias = true},
      {.name = "qwen3", .qk_norm = true},
      {.name = "gpt2",
       .norm = NormKind::layer,
       .norm_eps = 1e-5,
       .mlp = MlpKind::gelu,
       .positions = PositionKind::learned,
       .qkv_bias = true,
       .linear_bias = true,
       .tied = true},
      {.name = "gemma2",
       .norm_offset = 1,
       .norm_rounds = false,
       .mlp = MlpKind::geglu,
       .window = 4096,
       .full_attention_every = 2,
       .attention_softcap = 50,
       .logit_softcap = 30,
       .embedding_scale = true,
       .tied = true},
      {.name = "gemma3",
       .norm_offset = 1,
       .norm_rounds = false,
       .qk_norm = true,
       .mlp = MlpKind::geglu,
       .rope_theta = 1e6,
       .window_rope_theta = 1e4,
       .window = 4096,
       .full_attention_every = 6,
       .embedding_scale = true,
       .tied = true},
      {.name = "phi3", .norm_eps = 1e-5},
      {.name = "granite"},
      {.name = "glm4",
       .norm_eps = 1.5625e-7,
       .partial_rotary_factor = 0.5,
       .interleaved_rope = true,
       .qkv_bias = true},
      {.name = "olmo2",
       .norm_eps = 1e-5,
       .norm_rounds = false,
       .qk_norm = true,
       .qk_norm_width = QkNormWidth::all_heads},
      {.name = "smollm3", .rope_theta = 2e6, .no_rope_every = 4, .tied = true},
      {.name = "qwen3_moe", .qk_norm = true, .experts = true},
      {.name = "qwen2_moe", .qkv_bias = true, .experts = true, .shared_expert = true, .shared_gate = true},
      {.name = "mixtral", .norm_eps = 1e-5, .rope_theta = 1e6, .experts = true, .norm_topk = true},
      {.name = "olmoe",
       .norm_eps = 1e-5,
       .qk_norm = true,
       .qk_norm_width = QkNormWidth::all_heads,
       .experts = true},
      {.name = "granitemoe", .experts = true, .norm_topk = true},
      {.name = "glm4_moe",
       .norm_eps = 1e-5,
       .partial_rotary_factor = 0.5,
       .experts = true,
       .norm_topk = true,
       .shared_expert = true,
       .sigmoid_router = true},
      {.name = "gpt_oss",
       .norm_eps = 1e-5,
       .norm_rounds = false,
       .mlp = MlpKind::clamped_glu,
       .rope_theta = 150000,
       .window = 128,
       .full_attention_every = 2,
       .qkv_bias = true,
       .linear_bias = true,
       .experts = true,
       .norm_topk = true,
       .swiglu_limit = 7,
       .sinks = true},
      {.name = "idefics2", .norm_eps = 1e-5, .window = 4096, .connector = ConnectorKind::perceiver},
      {.name = "idefics3", .norm_eps = 1e-5, .connector = ConnectorKind::pixel_shuffle},
      {.name = "smolvlm", .norm_eps = 1e-5, .connector = ConnectorKind::pixel_shuffle},
      {.name = "qwen2_vl",
       .norm_eps = 1e-5,
       .rope_theta = 1e6,
       .qkv_bias = true,
       .rope_axes = true,
       .connector = ConnectorKind::merger,
       .tower = {.names = "qwen2_vision", .mlp = MlpKind::quick_gelu, .rotary = true}},
      {.name = "qwen2_5_vl",
       .norm_eps = 1e-5,
       .rope_theta = 1e6,
       .qkv_bias = true,
       .rope_axes = true,
       .connector = ConnectorKind::merger,
       .tower = {.names = "qwen2_5_vision", .norm = NormKind::rms, .mlp = MlpKind::swiglu, .rotary = true}},
  };
  return rows;
}

const Family& family(const std::string& name) {
  std::string names;
  for (const Family& f : families()) {
    if (f.name == name) return f;
    names += (names.empty() ? "" : ", ") + f.name;
  }
  fail(str("model.family is \"", name, "\", must be one of ", names));
}

ModelConfig resolved(ModelConfig c) {
  const Family& f = family(c.family);
  c.norm = f.norm;
  c.norm_offset = f.norm_offset;
  c.norm_rounds = f.norm_rounds;
  c.qk_norm_width = f.qk_norm_width;
  c.mlp = f.mlp;
  c.positions = f.positions;
  c.embedding_scale = f.embedding_scale;
  c.interleaved_rope = f.interleaved_rope;
  c.partial_rotary_factor = c.partial_rotary_factor.value_or(f.partial_rotary_factor);
  c.attention_multiplier = c.attention_multiplier.value_or(f.attention_multiplier);
  c.linear_bias = f.linear_bias;
  c.sigmoid_router = f.sigmoid_router;
  c.sinks = f.sinks;
  c.swiglu_limit = c.swiglu_limit.value_or(f.swiglu_limit);
  check(c.vision.has_value() == f.connector.has_value(), "model.family = ", c.family,
        f.connector ? " reads images and needs the sizes of its tower: start from the config.json of a model"
                    : " does not read images, but the model has a tower");
  if (c.vision) {
    c.vision->connector = *f.connector;
    c.vision->tower = f.tower;
  }
  c.qkv_bias = c.qkv_bias.value_or(f.qkv_bias);
  c.qk_norm = c.qk_norm.value_or(f.qk_norm);
  c.norm_topk = c.norm_topk.value_or(f.norm_topk);
  c.tied = c.tied.value_or(f.tied);
  c.norm_eps = c.norm_eps.value_or(f.norm_eps);
  c.rope_theta = c.rope_theta.value_or(f.rope_theta);
  c.window_rope_theta = c.window_rope_theta.value_or(f.window_rope_theta);
  c.no_rope_every = c.no_rope_every.value_or(c.no_rope_blocks.empty() ? f.no_rope_every : 0);
  c.window = c.window.value_or(f.window);
  c.full_attention_every =
      c.full_attention_every.value_or(c.full_attention_blocks.empty() ? f.full_attention_every : 0);
  c.attention_softcap = c.attention_softcap.value_or(f.attention_softcap);
  c.logit_softcap = c.logit_softcap.value_or(f.logit_softcap);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0 && c.heads > 0) {
    check(c.hidden % c.heads == 0, "model.heads = ", c.heads, " does not divide model.hidden = ", c.hidden,
          "; change one of them or set model.head_dim");
    c.head_dim = c.hidden / c.heads;
  }
  if (c.query_scalar == 0) c.query_scalar = c.head_dim;
  if (c.ffn == 0 && c.hidden > 0 && c.hidden <= kMaxSize) c.ffn = 4 * c.hidden;
  if (c.expert_ffn == 0 && f.experts) c.expert_ffn = c.ffn;
  check_model(c);
  return c;
}

int64_t ModelConfig::window_of(int64_t block) const {
  if (has(full_attention_blocks, block)) return 0;
  return is_nth(*full_attention_every, block) ? 0 : *window;
}

bool ModelConfig::rotates(int64_t block) const {
  return positions == PositionKind::rotary && !is_nth(*no_rope_every, block) && !has(no_rope_blocks, block);
}

RopeScaling ModelConfig::scaling() const {
  const RopeScalingConfig& s = rope_scaling;
  const bool is_long = (context > 0 ? context : max_positions) > s.original_max_positions;
  return {.kind = s.kind,
          .factor = s.factor,
          .low_frequency_factor = s.low_freq_factor,
          .high_frequency_factor = s.high_freq_factor,
          .original_positions = s.original_max_positions,
          .beta_fast = s.beta_fast,
          .beta_slow = s.beta_slow,
          .truncate = s.truncate,
          .divisors = is_long ? s.long_factor : s.short_factor,
          .attention_factor = s.attention_factor > 0 ? s.attention_factor : default_attention_factor(s)};
}

bool VisionConfig::has_windows(int64_t block) const {
  return window > 0 && !has(full_attention_blocks, block);
}

int64_t ModelConfig::rotated_width() const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * *partial_rotary_factor);
}

float ModelConfig::attention_scale() const {
  if (*attention_multiplier > 0) return static_cast<float>(*attention_multiplier);
  return 1.0f / std::sqrt(static_cast<float>(query_scalar));
}

bool ModelConfig::has_experts(int64_t block) const { return experts > 0 && !has(dense_blocks, block); }

int64_t ModelConfig::expert_blocks() const { return experts > 0 ? layers - std::ssize(dense_blocks) : 0; }

bool ModelConfig::has_window_rope(int64_t block) const {
  return *window_rope_theta > 0 && window_of(block) > 0;
}

}  // namespace flatshard
