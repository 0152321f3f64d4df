#include "model/config.h"

#include "runtime/check.h"

namespace flatshard {
namespace {

// Tokens and positions are 32 bits wide, and no product of two sizes may overflow.
constexpr int64_t kMostSize = INT32_MAX;

void check_model(const ModelConfig& c) {
  const auto positive = [](const char* key, int64_t value) {
    check(value > 0, "model.", key, " is ", value, ", must be positive");
    check(value <= kMostSize, "model.", key, " is ", value, ", must be at most ", kMostSize);
  };
  positive("layers", c.layers);
  positive("hidden", c.hidden);
  positive("heads", c.heads);
  positive("kv_heads", c.kv_heads);
  positive("head_dim", c.head_dim);
  positive("ffn", c.ffn);
  positive("vocab", c.vocab);
  check(c.heads % c.kv_heads == 0, "model.heads = ", c.heads,
        " is not divisible by model.kv_heads = ", c.kv_heads);
  check(c.positions != PositionKind::rotary || c.head_dim % 2 == 0, "model.head_dim = ", c.head_dim,
        " is odd; rotary positions need pairs");
  check(*c.window >= 0, "model.window is ", *c.window, ", must be 0 (none) or positive");
}

}  // namespace

const std::vector<Family>& families() {
  // clang-format off
  static const std::vector<Family> rows{
  //  name       norm             mlp                 positions               qkv_bias other  qk_norm tied   eps   theta    window
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
  c.other_bias = f.other_bias;
  c.qkv_bias = c.qkv_bias.value_or(f.qkv_bias);
  c.qk_norm = c.qk_norm.value_or(f.qk_norm);
  c.tied = c.tied.value_or(f.tied);
  c.norm_eps = c.norm_eps.value_or(f.norm_eps);
  c.rope_theta = c.rope_theta.value_or(f.rope_theta);
  c.window = c.window.value_or(f.window);
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0 && c.heads > 0) {
    check(c.hidden % c.heads == 0, "model.hidden = ", c.hidden,
          " is not divisible by model.heads = ", c.heads, "; set model.head_dim or change one of them");
    c.head_dim = c.hidden / c.heads;
  }
  if (c.ffn == 0 && c.hidden > 0 && c.hidden <= kMostSize) c.ffn = 4 * c.hidden;
  check_model(c);
  return c;
}

}  // namespace flatshard
