// Adapters of experts against the same mixture with merged weights: the losses are equal, and the gradients
// of a and b follow from those of the merged weights, da = scale b^T dw and db = scale dw a^T.

#include "model/expert_adapter.h"

#include <cmath>
#include <map>
#include <string>

#include "runtime/rng.h"
#include "tests/model/small_run.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using test::SmallRun;
using Values = std::vector<double>;

constexpr int64_t kHidden = 32, kFfn = 24, kExperts = 4;
const Adapter kOfUp{.rank = 3, .scale = 0.7f}, kOfDown{.rank = 5, .scale = -1.3f};

ModelConfig mixture(const std::string& family, bool adapted) {
  ModelConfig c{.family = family,
                .layers = 2,
                .hidden = kHidden,
                .heads = 2,
                .kv_heads = 2,
                .ffn = kFfn,
                .vocab = 50,
                .max_positions = 16,
                .experts = kExperts,
                .experts_per_token = 2,
                .expert_ffn = kFfn,
                .norm_topk = true};
  const std::string mlp = family == "mixtral" ? ".block_sparse_moe" : ".mlp";
  const auto path = [&](int64_t layer, int64_t e, const std::string& name) {
    return str("model.layers.", layer, mlp, ".experts.", e, ".", name);
  };
  const bool old = family == "mixtral";
  for (int64_t layer = 0; adapted && layer < 2; ++layer)
    for (int64_t e = 0; e < kExperts; ++e) {
      c.adapters[path(layer, e, old ? "w1" : "gate_proj")] = kOfUp;
      c.adapters[path(layer, e, old ? "w3" : "up_proj")] = kOfUp;
      c.adapters[path(layer, e, old ? "w2" : "down_proj")] = kOfDown;
    }
  return resolved(c);
}

SmallRun::Golden text() {
  test::GoldenTensor tokens{.dtype = "I32", .shape = {2, 16}, .values = {}}, targets = tokens;
  const RandomStream random(3, "tokens");
  for (int64_t i = 0; i < 32; ++i) {
    tokens.values.push_back(std::floor(50 * random.uniform(i)));
    targets.values.push_back(std::floor(50 * random.uniform(100 + i)));
  }
  return {{"tokens", tokens}, {"targets", targets}};
}

Values values_of(const std::string& name, const Shape& shape) {
  const RandomStream random(1, name);
  Values values(static_cast<size_t>(shape.size()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        0.4 * (2 * random.uniform(static_cast<int64_t>(i)) - 1) + (name.ends_with("norm.weight") ? 1 : 0);
  return values;
}

// x (rows, n) y (n, columns).
Values product(const Values& x, const Values& y, int64_t rows, int64_t columns, bool transpose_x = false,
               bool transpose_y = false) {
  const int64_t n = std::ssize(x) / rows;
  Values sums(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t k = 0; k < n; ++k)
        sums[static_cast<size_t>(i * columns + j)] +=
            x[static_cast<size_t>(transpose_x ? k * rows + i : i * n + k)] *
            y[static_cast<size_t>(transpose_y ? j * n + k : k * columns + j)];
  return sums;
}

// The factors of a weight's adapter.
struct Factors {
  Values a, b;
  double scale;
  int64_t rank, in, out;
};
Factors factors_of(const std::string& path, const Adapter& adapter, const Shape& weight) {
  const int64_t rank = adapter.rank, out = weight[0], in = weight[1];
  return {.a = values_of(path + ".lora_A.weight", {rank, in}),
          .b = values_of(path + ".lora_B.weight", {out, rank}),
          .scale = adapter.scale,
          .rank = rank,
          .in = in,
          .out = out};
}

// Fills a model with values that follow from names; its weights contain the updates of these adapters.
SmallRun::Fill filled_with(const Adapters& merged) {
  return [merged](const Model& model, const ParamTensors& parameters, Stream&) {
    for (size_t u = 0; u < parameters.size(); ++u)
      for (size_t i = 0; i < parameters[u].size(); ++i) {
        const ParamSpec& spec = model.param_lists()[u].specs()[i];
        Values values = values_of(spec.name, spec.shape);
        const std::string path = spec.name.substr(0, spec.name.rfind('.'));
        if (const auto found = merged.find(path); found != merged.end()) {
          const Factors f = factors_of(path, found->second, spec.shape);
          const Values update = product(f.b, f.a, f.out, f.in);
          for (size_t k = 0; k < values.size(); ++k) values[k] += f.scale * update[k];
        }
        bench::from_doubles(parameters[u][i], values);
      }
  };
}

std::map<std::string, Values> gradients_of(const ModelConfig& config, const SmallRun& run) {
  Arena tables("tables", Device::cpu());
  const Model model(config, tables);
  std::map<std::string, Values> gradients;
  for (size_t u = 0; u < run.gradients().size(); ++u)
    for (size_t i = 0; i < run.gradients()[u].size(); ++i)
      gradients[model.param_lists()[u].specs()[i].name] = bench::to_doubles(run.gradients()[u][i]);
  return gradients;
}

void check_close(const std::string& name, const Values& actual, const Values& expected, double factor) {
  CAPTURE(name);
  REQUIRE(actual.size() == expected.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    largest = std::max(largest, std::abs(factor * expected[i]));
    error = std::max(error, std::abs(actual[i] - factor * expected[i]));
  }
  CHECK(largest > 0);
  CHECK(error <= 2e-5 * largest);
}

}  // namespace

TEST_CASE("adapters of experts act like merged weights, and their gradients follow from those") {
  for (const char* family : {"qwen3_moe", "mixtral"})
    for (const bool recompute : {false, true}) {
      CAPTURE(family);
      const ModelConfig adapted = mixture(family, true), plain = mixture(family, false);
      const SmallRun with(adapted, text(), DType::f32, recompute, filled_with({})),
          merged(plain, text(), DType::f32, recompute, filled_with(adapted.adapters));
      CHECK(with.loss() == doctest::Approx(merged.loss()).epsilon(1e-6));
      const auto actual = gradients_of(adapted, with), expected = gradients_of(plain, merged);
      for (const auto& [name, gradient] : expected) check_close(name, actual.at(name), gradient, 1);
      for (const auto& [path, adapter] : adapted.adapters) {
        const bool down = path.ends_with("down_proj") || path.ends_with("w2");
        const Factors f = factors_of(path, adapter, down ? Shape{kHidden, kFfn} : Shape{kFfn, kHidden});
        const Values& dw = expected.at(path + ".weight");
        check_close(path + " a", actual.at(path + ".lora_A.weight"), product(f.b, dw, f.rank, f.in, true),
                    f.scale);
        check_close(path + " b", actual.at(path + ".lora_B.weight"),
                    product(dw, f.a, f.out, f.rank, false, true), f.scale);
      }
    }
}

TEST_CASE("adapters that experts cannot have are reported") {
  Arena tables("tables", Device::cpu());
  const auto error = [&](const std::function<void(Adapters&)>& change) {
    ModelConfig config = mixture("qwen3_moe", true);
    change(config.adapters);
    return test::error_of([&] { Model(config, tables); });
  };
  const std::string experts = "model.layers.0.mlp.experts.";
  CHECK(error([](Adapters&) {}) == "");
  CHECK(error([&](Adapters& a) { a.erase(experts + "2.up_proj"); })
            .starts_with("lora: all experts of a block have adapters of one rank and scale, or none: " +
                         experts + "2.up_proj"));
  CHECK(error([&](Adapters& a) { a[experts + "2.up_proj"].rank = 4; }).starts_with("lora: all experts"));
  CHECK(error([&](Adapters& a) {
          for (int64_t e = 0; e < kExperts; ++e) a.erase(str(experts, e, ".up_proj"));
        }).find("must both have an adapter of one rank and scale, or neither") != std::string::npos);
  CHECK(error([&](Adapters& a) {
          for (int64_t e = 0; e < kExperts; ++e) a[str(experts, e, ".up_proj")].rank = 4;
        }).find("must both have an adapter of one rank") != std::string::npos);
  CHECK(error([&](Adapters& a) {
          for (auto& [path, adapter] : a) adapter.dropout = 0.1f;
        }).starts_with("lora.dropout is 0.1, must be 0 with adapters of experts"));
  ModelConfig granite = mixture("granitemoe", false);
  granite.adapters["model.layers.0.block_sparse_moe.experts.down_proj"] = {
      .rank = 2, .scale = 1, .dropout = 0.1f};
  CHECK(test::error_of([&] {
          Model(granite, tables);
        }).starts_with("lora.dropout is 0.1, must be 0 with adapters of experts"));
}
