// Mixtures of experts whose weights and tokens follow a rule, against losses and gradients of transformers.

#include "model/experts.h"

#include <cmath>
#include <string>

#include "hub/model_folder.h"
#include "runtime/targets.h"
#include "tests/model/small_run.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using test::SmallRun;

constexpr int64_t kVocab = 96, kSequences = 2, kLength = 24;

uint32_t mixed(uint32_t h) {
  h ^= h >> 16;
  h *= 0x7feb352d;
  h ^= h >> 15;
  h *= 0x846ca68b;
  return h ^ h >> 16;
}

uint32_t hash_of(const std::string& name) {  // FNV-1a
  uint32_t h = 2166136261u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

struct Spread {
  double size, middle;
};
Spread spread_of(const std::string& name) {
  if (name.ends_with("norm.weight")) return {0.5, 1};
  if (name.ends_with("sinks")) return {2, 0};
  if (name.ends_with("bias")) return {0.25, 0};
  if (name.ends_with("router.weight") || name.ends_with("gate.weight") ||
      name.ends_with("router.layer.weight"))
    return {1, 0};
  return {0.25, 0};
}

// Where the first value of a parameter is in files.
struct FilePlace {
  std::string tensor;
  uint32_t first = 0;
};
FilePlace place_of(const ModelConfig& config, const std::string& parameter) {
  for (const JoinedTensor& joined : written_joined(config)) {
    FilePlace place{joined.name};
    for (const JoinedTensor::Part& part : joined.parts) {
      if (part.name == parameter) return place;
      place.first += static_cast<uint32_t>(part.elements());
    }
  }
  return {parameter};
}

void fill(const Model& model, const ParamTensors& parameters, Stream&) {
  for (size_t u = 0; u < parameters.size(); ++u)
    for (size_t i = 0; i < parameters[u].size(); ++i) {
      const auto [name, first] = place_of(model.config(), model.param_lists()[u].specs()[i].name);
      const auto [size, middle] = spread_of(name);
      const uint32_t hash = hash_of(name);
      std::vector<double> values(static_cast<size_t>(parameters[u][i].size()));
      for (size_t k = 0; k < values.size(); ++k) {
        const uint32_t h = mixed(hash + (first + static_cast<uint32_t>(k)) * 0x9E3779B1u);
        values[k] = middle + size * (static_cast<double>(h >> 8) / (1 << 24) - 0.5);
      }
      bench::from_doubles(parameters[u][i], values);
    }
}

SmallRun::Golden text() {
  SmallRun::Golden golden;
  test::GoldenTensor tokens{.dtype = "I32", .shape = {kSequences, kLength}, .values = {}}, targets = tokens;
  for (uint32_t p = 0; p < kSequences * kLength; ++p) tokens.values.push_back(mixed(p + 7) % kVocab);
  for (int64_t p = 0; p < kSequences * kLength; ++p)
    targets.values.push_back((p + 1) % kLength == 0 ? -100 : tokens.values[static_cast<size_t>(p) + 1]);
  return {{"tokens", tokens}, {"targets", targets}};
}

struct Reference {
  const char* family;
  int64_t experts, ffn, kv_heads;
  bool norm_topk;
  int64_t shared_ffn, dense_ffn;  // 0: no shared expert, and no block without experts

  double loss, norm, norm_with_balance;  // means; with a coefficient of 0.01
  double balance;                        // the loss that balances experts, without it; 0: none
};
// transformers 5.24.0 in fp32.
constexpr Reference kReferences[] = {
    {"qwen3_moe", 8, 32, 2, true, 0, 0, 4.805442, 3.708137, 3.703772, 2.389528},
    {"mixtral", 4, 48, 2, true, 0, 0, 4.865099, 3.167907, 3.178699, 2.494755},
    {"olmoe", 8, 32, 4, false, 0, 0, 4.810507, 3.335047, 3.335513, 2.143966},
    {"qwen2_moe", 8, 32, 2, false, 48, 96, 4.824160, 3.265500, 3.283172, 2.731102},
    {"granitemoe", 8, 32, 2, true, 0, 0, 4.594497, 1.087733, 1.086334, 2.177574},
    {"glm4_moe", 8, 32, 2, true, 32, 96, 4.795459, 3.924234, 3.924234, 0},
    {"gpt_oss", 8, 32, 2, true, 0, 0, 4.791973, 3.302825, 3.295750, 3.044548},
};

// Two sequences of these lengths, each behind it with padding of a token that has a row of its own.
SmallRun::Golden padded_text(int64_t length, int64_t padding) {
  const int64_t all = length + padding;
  SmallRun::Golden golden;
  test::GoldenTensor tokens{.dtype = "I32", .shape = {kSequences, all}, .values = {}}, targets = tokens;
  for (int64_t s = 0; s < kSequences; ++s)
    for (int64_t t = 0; t < all; ++t) {
      tokens.values.push_back(t < length ? mixed(static_cast<uint32_t>(s * 64 + t)) % kVocab : 0);
      targets.values.push_back(t >= length ? kPaddingTarget
                                           : mixed(static_cast<uint32_t>(s * 64 + t + 1)) % kVocab);
    }
  return {{"tokens", tokens}, {"targets", targets}};
}

SmallRun run_of(const Reference& r, DType dtype, bool recompute, double coefficient,
                const SmallRun::Golden& golden = text()) {
  ModelConfig c{.family = r.family,
                .layers = 2,
                .hidden = 64,
                .heads = 4,
                .kv_heads = r.kv_heads,
                .ffn = r.dense_ffn > 0 ? r.dense_ffn : r.ffn,
                .vocab = kVocab,
                .max_positions = kLength,
                .rope_theta = 10000,
                .experts = r.experts,
                .experts_per_token = 2,
                .expert_ffn = r.ffn,
                .shared_ffn = r.shared_ffn,
                .norm_topk = r.norm_topk};
  if (r.dense_ffn > 0) c.dense_blocks = {0};
  if (std::string(r.family) == "granitemoe") {
    c.embedding_multiplier = c.logit_divisor = 2;
    c.attention_multiplier = 0.2;
    c.residual_multiplier = 0.5;
  }
  if (std::string(r.family) == "glm4_moe") {
    c.qkv_bias = c.qk_norm = true;
    c.routed_scale = 1.5;
    c.expert_groups = 4;
    c.top_groups = 2;
    coefficient = 0;  // it has no such loss
  }
  if (std::string(r.family) == "gpt_oss") {
    c.window = 8;
    c.rope_theta = 150000;
    c.rope_scaling = {
        .kind = RopeScaling::Kind::yarn, .factor = 32, .original_max_positions = 16, .truncate = false};
    c.swiglu_limit = 0.5;
  }
  const double rows = static_cast<double>(r.dense_ffn > 0 ? 1 : 2) * kSequences * kLength,
               targets = kSequences * (kLength - 1);
  // The run's gradients are sums over targets.
  const double balance = targets * coefficient * static_cast<double>(r.experts) / rows / rows;
  return {resolved(c), golden, dtype, recompute, fill, static_cast<float>(balance)};
}

double norm_of(const SmallRun& run) {
  double sum = 0;
  for (const auto& list : run.gradients())
    for (const Tensor& gradient : list)
      for (const double g : gradient.empty() ? std::vector<double>{} : bench::to_doubles(gradient))
        sum += g * g;
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("mixtures of experts have the losses and the norms of gradients of transformers") {
  constexpr double kTargets = kSequences * (kLength - 1);
  for (const Reference& r : kReferences) {
    CAPTURE(std::string(r.family));
    const SmallRun plain = run_of(r, DType::f32, false, 0), balanced = run_of(r, DType::f32, false, 0.01);
    CHECK(plain.loss() / kTargets == doctest::Approx(r.loss).epsilon(1e-6));
    CHECK(norm_of(plain) / kTargets == doctest::Approx(r.norm).epsilon(1e-6));
    CHECK(norm_of(balanced) / kTargets == doctest::Approx(r.norm_with_balance).epsilon(1e-6));
    if (r.balance == 0) continue;
    double sum = 0;
    for (const double loss : bench::to_doubles(balanced.router_losses())) sum += loss;
    CHECK(sum / kTargets / 0.01 == doctest::Approx(r.balance).epsilon(1e-6));
  }
}

TEST_CASE("each token of each block counts once for each of its experts, and not again when recomputed") {
  for (const bool recompute : {false, true}) {
    const SmallRun run = run_of(kReferences[0], DType::f32, recompute, 0.01);
    double sum = 0;
    for (const double count : bench::to_doubles(run.expert_counts())) sum += count;
    CHECK(sum == 2 * 2 * kSequences * kLength);
  }
}

TEST_CASE("recomputed mixtures with a loss that balances experts have the same gradients") {
  for (const DType dtype : {DType::f32, DType::bf16})
    CHECK(norm_of(run_of(kReferences[2], dtype, false, 0.5)) ==
          norm_of(run_of(kReferences[2], dtype, true, 0.5)));
}

TEST_CASE("padding changes no loss, gradient and count of a mixture") {
  for (const Reference& r : kReferences) {
    CAPTURE(std::string(r.family));
    const SmallRun without = run_of(r, DType::f32, false, 0.5, padded_text(14, 0)),
                   with = run_of(r, DType::f32, false, 0.5, padded_text(14, 10));
    CHECK(with.loss() == doctest::Approx(without.loss()).epsilon(1e-6));
    CHECK(norm_of(with) == doctest::Approx(norm_of(without)).epsilon(1e-6));
    CHECK(bench::to_doubles(with.expert_counts()) == bench::to_doubles(without.expert_counts()));
  }
}
