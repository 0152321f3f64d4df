#include "model/model.h"

#include <map>

#include "tests/model/small_run.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

ModelConfig small_model(const std::string& family) {
  ModelConfig c{
      .family = family, .layers = 2, .hidden = 16, .heads = 4, .ffn = 24, .vocab = 40, .max_positions = 32};
  if (family != "gpt2") c.kv_heads = 2;
  if (family == "gpt2") c.ffn = 64;
  if (family == "mistral") c.window = 5;
  if (family == "qwen3") c.head_dim = 6;
  if (family == "gemma2") {
    c.head_dim = 6;
    c.query_scalar = 9;
    c.window = 5;
    c.attention_softcap = 0.5;
    c.logit_softcap = 0.75;
  }
  if (family == "gemma3") {
    c.head_dim = 6;
    c.query_scalar = 9;
    c.window = 5;
    c.full_attention_blocks = {1};
    c.rope_theta = 1e4;
    c.window_rope_theta = 100;
    c.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 4};
  }
  if (family == "phi3") c.window = 5;
  if (family == "granite" || family == "granitemoe") {
    c.embedding_multiplier = 3;
    c.attention_multiplier = 0.3;
    c.residual_multiplier = 0.4;
    c.logit_divisor = 2.5;
  }
  if (family == "glm4") c.head_dim = 12;
  if (family == "smollm3") c.no_rope_every = 2;
  if (flatshard::family(family).experts) {
    c.ffn = family == "qwen3_moe" || family == "qwen2_moe" || family == "glm4_moe" ? 24 : 32;
    if (family == "qwen2_moe") c.shared_ffn = 40;
    c.expert_ffn = 32;
    c.experts = family == "qwen3_moe" ? 6 : family == "mixtral" ? 4 : 5;
    c.experts_per_token = family == "qwen3_moe" ? 3 : 2;
    if (family == "glm4_moe") {
      c.experts = 6;
      c.expert_groups = 3;
      c.top_groups = 2;
      c.routed_scale = 1.5;
      c.shared_ffn = 64;
      c.dense_blocks = {0};
      c.qkv_bias = c.qk_norm = true;
    }
    if (family == "gpt_oss") {
      c.head_dim = 6;
      c.window = 5;
      c.swiglu_limit = 0.6;
      c.rope_theta = 1e4;
    }
    if (family == "qwen3_moe") {
      c.head_dim = 6;
      c.norm_topk = true;
      c.dense_blocks = {0};
    }
  }
  if (family == "idefics2") {
    c.window = 7;
    c.vision = VisionConfig{.layers = 1, .image_size = 28};
    c.vision->perceiver = {.latents = 3, .layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 6};
  }
  if (family == "idefics3" || family == "smolvlm") c.vision = VisionConfig{.layers = 2, .image_size = 24};
  if (flatshard::family(family).rope_axes) {
    c.heads = 2;
    c.kv_heads = 1;
    c.rope_sections = {1, 1, 2};
    c.vision = VisionConfig{.layers = 2,
                            .hidden = 24,
                            .heads = 2,
                            .ffn = family == "qwen2_vl" ? 48 : 40,
                            .patch_size = 4,
                            .image_token = 39,
                            .repeats = 2};
    if (family == "qwen2_5_vl") {
      c.vision->window = 2;
      c.vision->full_attention_blocks = {1};
    }
  } else if (c.vision) {
    c.vision->hidden = 144;
    c.vision->heads = 2;
    c.vision->ffn = 40;
    c.vision->patch_size = 4;
    c.vision->image_token = 39;
  }
  return resolved(c);
}

using test::SmallRun;
using Golden = SmallRun::Golden;

// SmolVLM is Idefics3 under another name.
Golden golden_of(const std::string& family) {
  return test::load_golden("model_" + (family == "smolvlm" ? "idefics3" : family));
}

// Runs with the parameters of the golden file.
SmallRun run_of(const std::string& family, const Golden& golden, DType dtype, bool recompute) {
  return {small_model(family), golden, dtype, recompute,
          [&](const Model& model, const ParamTensors& parameters, Stream&) {
            for (size_t u = 0; u < parameters.size(); ++u)
              for (size_t i = 0; i < parameters[u].size(); ++i)
                bench::from_doubles(parameters[u][i],
                                    golden.at(model.param_lists()[u].specs()[i].name).values);
          }};
}

}  // namespace

TEST_CASE("a two-layer model of each family has the loss and gradients of Hugging Face transformers") {
  for (const Family& f : families()) {
    CAPTURE(f.name);
    const Golden golden = golden_of(f.name);
    const SmallRun run = run_of(f.name, golden, DType::f32, false);
    const double expected = golden.at("loss").values[0];
    CHECK(run.loss() == doctest::Approx(expected).epsilon(1e-5));
    const auto [error, name] = run.gradient_error(golden);
    CAPTURE(name);
    CHECK(error < 1e-4);
  }
}

TEST_CASE("the attention factors of YaRN and longrope are those of transformers") {
  const auto golden = test::load_golden("rope_scalings");
  const RopeScalingConfig yarn{.kind = RopeScaling::Kind::yarn, .factor = 8, .original_max_positions = 512},
      longrope{.kind = RopeScaling::Kind::longrope, .factor = 8, .original_max_positions = 512};
  RopeScalingConfig given = yarn, mscale = yarn, long_given = longrope;
  given.attention_factor = 0.75;
  mscale.mscale = 2;
  mscale.mscale_all_dim = 0.5;
  long_given.attention_factor = 1.25;
  for (const auto& [name, scaling] : {std::pair<std::string, RopeScalingConfig>{"yarn", yarn},
                                      {"yarn_factor", given},
                                      {"yarn_mscale", mscale},
                                      {"longrope", longrope},
                                      {"longrope_factor", long_given}}) {
    CAPTURE(name);
    ModelConfig c;
    c.rope_scaling = scaling;
    CHECK(c.scaling().attention_factor ==
          doctest::Approx(golden.at(name + ".attention_factor").values[0]).epsilon(1e-6));
  }
}

TEST_CASE("in bf16 a model's loss and gradients stay near those of f32") {
  for (const Family& f : families()) {
    CAPTURE(f.name);
    const Golden golden = golden_of(f.name);
    const SmallRun run = run_of(f.name, golden, DType::bf16, false);
    CHECK(run.loss() == doctest::Approx(golden.at("loss").values[0]).epsilon(0.01));
    const auto [error, name] = run.gradient_error(golden);
    CAPTURE(name);
    // A few bf16 roundings of 2^-8 in each of about ten consecutive ops, relative to small elements. Where
    // rounding moves a gate across its bound, a sum gains or loses a term, which may be as large as the sum.
    CHECK(error < (f.swiglu_limit > 0 ? 2 : 0.25));
  }
}

TEST_CASE("recomputing activations gives the same bits") {
  for (const Family& f : families()) {
    CAPTURE(f.name);
    const Golden golden = golden_of(f.name);
    const SmallRun kept = run_of(f.name, golden, DType::bf16, false);
    const SmallRun again = run_of(f.name, golden, DType::bf16, true);
    CHECK(kept.loss() == again.loss());
    for (size_t u = 0; u < kept.gradients().size(); ++u)
      for (size_t i = 0; i < kept.gradients()[u].size(); ++i)
        CHECK(bench::to_doubles(kept.gradients()[u][i]) == bench::to_doubles(again.gradients()[u][i]));
  }
}

TEST_CASE("a model counts its parameters as the published models do") {
  Arena tables("tables", Device::cpu());
  const auto count = [&](ModelConfig c) { return Model(resolved(c), tables).parameter_count(); };
  CHECK(count({.family = "llama", .layers = 32, .hidden = 4096, .heads = 32, .ffn = 11008, .vocab = 32000}) ==
        6738415616);
  CHECK(count({.family = "mistral",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .ffn = 14336,
               .vocab = 32000}) == 7241732096);
  CHECK(count({.family = "qwen2",
               .layers = 24,
               .hidden = 896,
               .heads = 14,
               .kv_heads = 2,
               .ffn = 4864,
               .vocab = 151936,
               .tied = true}) == 494032768);
  CHECK(count({.family = "qwen3",
               .layers = 28,
               .hidden = 1024,
               .heads = 16,
               .kv_heads = 8,
               .head_dim = 128,
               .ffn = 3072,
               .vocab = 151936,
               .tied = true}) == 596049920);
  CHECK(count({.family = "gemma2",
               .layers = 26,
               .hidden = 2304,
               .heads = 8,
               .kv_heads = 4,
               .head_dim = 256,
               .ffn = 9216,
               .vocab = 256000}) == 2614341888);
  CHECK(count({.family = "gemma3",
               .layers = 26,
               .hidden = 1152,
               .heads = 4,
               .kv_heads = 1,
               .head_dim = 256,
               .ffn = 6912,
               .vocab = 262144}) == 999885952);
  CHECK(count({.family = "phi3", .layers = 32, .hidden = 3072, .heads = 32, .ffn = 8192, .vocab = 32064}) ==
        3821079552);
  CHECK(count({.family = "granite",
               .layers = 40,
               .hidden = 2048,
               .heads = 32,
               .kv_heads = 8,
               .ffn = 8192,
               .vocab = 49155,
               .tied = true}) == 2533531648);
  CHECK(count({.family = "glm4",
               .layers = 40,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 2,
               .head_dim = 128,
               .ffn = 13696,
               .vocab = 151552}) == 9400279040);
  CHECK(
      count({.family = "olmo2", .layers = 32, .hidden = 4096, .heads = 32, .ffn = 11008, .vocab = 100352}) ==
      7298617344);
  CHECK(count({.family = "smollm3",
               .layers = 36,
               .hidden = 2048,
               .heads = 16,
               .kv_heads = 4,
               .ffn = 11008,
               .vocab = 128256}) == 3075098624);
  CHECK(count({.family = "gpt2",
               .layers = 12,
               .hidden = 768,
               .heads = 12,
               .vocab = 50257,
               .max_positions = 1024}) == 124439808);
}
