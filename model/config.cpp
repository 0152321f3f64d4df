#include "model/config.h"

#include "runtime/check.h"

namespace flatshard {
namespace {

// Tokens and positions are 32 bits wide. The other bounds are far beyond any model, and such that no sum over
// a model's parameters overflows and the largest is still planned in a moment.
constexpr int64_t kMostSize = INT32_MAX, kMostWidth = 1 << 20, kMostFfn = 4 * kMostWidth, kMostLayers = 4096;

void check_most(const char* key, int64_t value, int64_t most) {
  check(value <= most, "model.", key, " is ", value, ", must be at most ", most);
}

void check_model(const ModelConfig& c) {
  const auto positive = [](const char* key, int64_t value, int64_t most) {
    check(value > 0, "model.", key, " is ", value, ", must be positive");
    check_most(key, value, most);
  };
  positive("layers", c.layers, kMostLayers);
  positive("hidden", c.hidden, kMostWidth);
  positive("heads", c.heads, kMostWidth);
  positive("kv_heads", c.kv_heads, kMostWidth);
  positive("head_dim", c.head_dim, kMostWidth);
  positive("ffn", c.ffn, kMostFfn);
  positive("vocab", c.vocab, kMostSize);
  check_most("max_positions", c.max_positions, kMostSize);
  check_most("window", *c.window, kMostSize);
  check(c.heads * c.head_dim <= kMostWidth, "model.heads = ", c.heads, " times model.head_dim = ", c.head_dim,
        " is ", c.heads * c.head_dim, ", must be at most ", kMostWidth);
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
