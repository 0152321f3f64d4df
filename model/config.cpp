#include "model/config.h"

#include "runtime/check.h"

namespace flatshard {
namespace {

// Tokens and positions are 32 bits wide. The other bounds are far above any real model; they keep parameter
// counts within 64 bits and the memory plan of the largest model fast.
constexpr int64_t kMaxSize = INT32_MAX, kMaxWidth = 1 << 20, kMaxFfn = 4 * kMaxWidth, kMaxLayers = 4096;

void check_max(const char* key, int64_t value, int64_t max) {
  check(value <= max, "model.", key, " is ", value, ", must be at most ", max);
}

void check_model(const ModelConfig& c) {
  const auto positive = [](const char* key, int64_t value, int64_t max) {
    check(value > 0, "model.", key, " is ", value, ", must be positive");
    check_max(key, value, max);
  };
  positive("layers", c.layers, kMaxLayers);
  positive("hidden", c.hidden, kMaxWidth);
  positive("heads", c.heads, kMaxWidth);
  positive("kv_heads", c.kv_heads, kMaxWidth);
  positive("head_dim", c.head_dim, kMaxWidth);
  positive("ffn", c.ffn, kMaxFfn);
  positive("vocab", c.vocab, kMaxSize);
  check_max("max_positions", c.max_positions, kMaxSize);
  check_max("window", *c.window, kMaxSize);
  check(c.heads * c.head_dim <= kMaxWidth, "model.heads = ", c.heads, " times model.head_dim = ", c.head_dim,
        " is ", c.heads * c.head_dim, ", must be at most ", kMaxWidth);
  check(c.heads % c.kv_heads == 0, "model.kv_heads = ", c.kv_heads,
        " does not divide model.heads = ", c.heads);
  check(c.positions != PositionKind::rotary || c.head_dim % 2 == 0, "model.head_dim = ", c.head_dim,
        " must be even for rotary positions");
  check(*c.window >= 0, "model.window is ", *c.window, ", must be 0 (none) or positive");
}

}  // namespace

const std::vector<Family>& families() {
  // clang-format off
  static const std::vector<Family> rows{
  //  name       norm             mlp                 positions               qkv_bias linear qk_norm tied   eps   theta    window
    {"llama",   NormKind::rms,   MlpKind::swiglu,    PositionKind::rotary,   false,   false, false,  false, 1e-6, 10000.0, 0},
    {"mistral", NormKind::rms,   MlpKind::swiglu,    PositionKind::rotary,   false,   false, false,  false, 1e-6, 10000.0, 4096},
    {"qwen2",   NormKind::rms,   MlpKind::swiglu,    PositionKind::rotary,   true,    false, false,  false, 1e-6, 10000.0, 0},
    {"qwen3",   NormKind::rms,   MlpKind::swiglu,    PositionKind::rotary,   false,   false, true,   false, 1e-6, 10000.0, 0},
    {"gpt2",    NormKind::layer, MlpKind::gelu_tanh, PositionKind::learned,  true,    true,  false,  true,  1e-5, 10000.0, 0},
  };
  // clang-format on
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
  c.mlp = f.mlp;
  c.positions = f.positions;
  c.linear_bias = f.linear_bias;
  c.qkv_bias = c.qkv_bias.value_or(f.qkv_bias);
  c.qk_norm = c.qk_norm.value_or(f.qk_norm);
  c.tied = c.tied.value_or(f.tied);
  c.norm_eps = c.norm_eps.value_or(f.norm_eps);
  c.rope_theta = c.rope_theta.value_or(f.rope_theta);
  c.window = c.window.value_or(f.window);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0 && c.heads > 0) {
    check(c.hidden % c.heads == 0, "model.heads = ", c.heads, " does not divide model.hidden = ", c.hidden,
          "; change one of them or set model.head_dim");
    c.head_dim = c.hidden / c.heads;
  }
  if (c.ffn == 0 && c.hidden > 0 && c.hidden <= kMaxSize) c.ffn = 4 * c.hidden;
  check_model(c);
  return c;
}

}  // namespace flatshard
