// Adapters of experts against the same mixture with merged weights: the losses are equal, and the gradients
// of a and b follow from those of the merged weights, da = scale b^T dw and db = scale dw a^T.

#include "model/expert_adapter.h"

#include <cmath>
#include <map>
#include <string>

#include "model/names.h"
#include "runtime/rng.h"
#include "tests/model/small_run.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using test::SmallRun;
using Values = std::vector<double>;

constexpr int64_t kHidden = 32, kFfn = 24, kExperts = 4;
const Adapter kOfUp{.rank = 3, .scale = 0.7f}, kOfDown{.rank = 5, .scale = -1.3f};

std::string mlp_of(const std::string& family) { return family == "mixtral" ? ".block_sparse_moe" : ".mlp"; }

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
  for (int64_t layer = 0; adapted && layer < 2; ++layer) {
    const std::string experts = str("model.layers.", layer, mlp_of(family), ".experts.");
    c.adapters[experts + "gate_up_proj"] = kOfUp;
    c.adapters[experts + "down_proj"] = kOfDown;
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

// The layer of an expert with a weight, and the part of its adapter's tensors that is its own.
struct Part {
  Part(const std::string& path, const Shape& weight) : out(weight[0]), in(weight[1]) {
    const std::string module = module_of_experts(path);
    down = adapted_layer(path).ends_with(kDownOfExperts);
    expert = std::stoll(path.substr(module.size() + 1));
    first_row = path.ends_with("up_proj") || path.ends_with("w3") ? kFfn : 0;
    name = module + (down ? "" : ".base_layer");
    rank = (down ? kOfDown : kOfUp).rank;
    scale = (down ? kOfDown : kOfUp).scale;
  }
  // The part of values like a, and like b.
  Values of_a(const Values& all) const {
    const auto begin = all.begin() + expert * rank * in;
    return {begin, begin + rank * in};
  }
  Values of_b(const Values& all) const {
    Values part;
    for (int64_t row = first_row; row < first_row + out; ++row)
      for (int64_t j = 0; j < rank; ++j)
        part.push_back(all[static_cast<size_t>((row * rank + j) * kExperts + expert)]);
    return part;
  }
  Values a() const { return of_a(values_of(name + ".lora_A.weight", {kExperts * rank, in})); }
  Values b() const {
    return of_b(values_of(name + ".lora_B.weight", {(down ? 1 : 2) * out, rank * kExperts}));
  }

  int64_t out, in, expert, first_row, rank;
  bool down;
  double scale;
  std::string name;  // of the parameters, before ".lora_A.weight"
};

// Fills a model with values that follow from names; with `merged` weights of experts contain the updates of
// their adapters.
SmallRun::Fill filled(bool merged) {
  return [merged](const Model& model, const ParamTensors& parameters, Stream&) {
    for (size_t u = 0; u < parameters.size(); ++u)
      for (size_t i = 0; i < parameters[u].size(); ++i) {
        const ParamSpec& spec = model.param_lists()[u].specs()[i];
        Values values = values_of(spec.name, spec.shape);
        if (merged && !module_of_experts(spec.name).empty()) {
          const Part part(spec.name.substr(0, spec.name.rfind('.')), spec.shape);
          const Values update = product(part.b(), part.a(), part.out, part.in);
          for (size_t k = 0; k < values.size(); ++k) values[k] += part.scale * update[k];
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
      const SmallRun with(adapted, text(), DType::f32, recompute, filled(false)),
          merged(plain, text(), DType::f32, recompute, filled(true));
      CHECK(with.loss() == doctest::Approx(merged.loss()).epsilon(1e-6));
      const auto actual = gradients_of(adapted, with), expected = gradients_of(plain, merged);
      std::map<std::string, Values> da;  // by layer and expert: gate and up have one a
      for (const auto& [name, dw] : expected) {
        check_close(name, actual.at(name), dw, 1);
        if (module_of_experts(name).empty()) continue;
        const std::string path = name.substr(0, name.rfind('.'));
        const bool is_down = adapted_layer(path).ends_with(kDownOfExperts);
        const Part part(path, is_down ? Shape{kHidden, kFfn} : Shape{kFfn, kHidden});
        check_close(path + " b", part.of_b(actual.at(part.name + ".lora_B.weight")),
                    product(dw, part.a(), part.out, part.rank, false, true), part.scale);
        Values& sum = da[str(part.name, " ", part.expert)];
        const Values more = product(part.b(), dw, part.rank, part.in, true);
        sum.resize(more.size());
        for (size_t k = 0; k < more.size(); ++k) sum[k] += more[k];
        if (!is_down && part.first_row == 0) continue;  // gate comes before up
        check_close(path + " a", part.of_a(actual.at(part.name + ".lora_A.weight")), sum, part.scale);
      }
    }
}

TEST_CASE("adapters of experts have no dropout") {
  Arena tables("tables", Device::cpu());
  ModelConfig config = mixture("qwen3_moe", true);
  CHECK(test::error_of([&] { Model(config, tables); }) == "");
  config.adapters.begin()->second.dropout = 0.1f;
  CHECK(test::error_of([&] {
          Model(config, tables);
        }).starts_with("lora.dropout is 0.1, must be 0 with adapters of experts"));
}
