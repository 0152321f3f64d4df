#include "hub/expert_tensors.h"

#include <numeric>

#include "tests/small_model.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Texts = std::vector<std::string>;

const Texts kBoth{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
constexpr char kGateUpA[] = "model.layers.1.mlp.experts.base_layer.lora_A.weight",
               kGateUpB[] = "model.layers.1.mlp.experts.base_layer.lora_B.weight",
               kOuterB[] = "model.layers.1.mlp.experts.lora_B.weight";

// Five experts of width 32, 16 columns; the first block has none.
ModelConfig mixture() { return test::small_model("qwen3_moe"); }

std::vector<ExpertPart> parts_of(const std::string& name, const std::vector<int64_t>& shape,
                                 const Texts& parameters = kBoth) {
  SafetensorsEntry entry;
  entry.shape = shape;
  return expert_parts(name, entry, mixture(), parameters, "adapter: " + name);
}

std::vector<float> values_of(const ExpertPart& part, const std::vector<float>& whole) {
  std::vector<float> values(static_cast<size_t>(part.rows * part.columns));
  read_part(part, whole, 0, std::ssize(values), values.data());
  return values;
}

}  // namespace

TEST_CASE("an expert has rows of a, and every E-th column of b") {
  std::vector<float> whole(5 * 2 * 16);
  std::iota(whole.begin(), whole.end(), 0.0f);
  const std::vector<ExpertPart> a = parts_of(kGateUpA, {10, 16});
  REQUIRE(a.size() == 10);
  CHECK(a[6].layer == "model.layers.1.mlp.experts.gate_up_proj");
  CHECK(a[6].parameter == "model.layers.1.mlp.experts.3.gate_proj.lora_A.weight");
  CHECK(a[7].parameter == "model.layers.1.mlp.experts.3.up_proj.lora_A.weight");
  CHECK(values_of(a[6], whole) == std::vector<float>(whole.begin() + 96, whole.begin() + 128));
  CHECK(values_of(a[7], whole) == values_of(a[6], whole));

  whole.resize(64 * 10);
  std::iota(whole.begin(), whole.end(), 0.0f);
  const std::vector<ExpertPart> b = parts_of(kGateUpB, {64, 10});
  const std::vector<float> gate = values_of(b[6], whole), up = values_of(b[7], whole);
  REQUIRE(gate.size() == 64);
  for (size_t row = 0; row < 32; ++row)
    for (size_t j = 0; j < 2; ++j) {
      CHECK(gate[row * 2 + j] == static_cast<float>(row * 10 + j * 5 + 3));
      CHECK(up[row * 2 + j] == static_cast<float>((32 + row) * 10 + j * 5 + 3));
    }
}

TEST_CASE("the only parameter with an adapter is the one that the config names") {
  CHECK(parts_of(kOuterB, {16, 10}, {kBoth[1]})[4].parameter ==
        "model.layers.1.mlp.experts.4.down_proj.lora_B.weight");
  CHECK(parts_of(kOuterB, {64, 10}, {kBoth[0]})[4].parameter ==
        "model.layers.1.mlp.experts.2.gate_proj.lora_B.weight");
}

TEST_CASE("tensors and parameters that do not fit are reported") {
  CHECK(test::error_of([] {
          parts_of(kGateUpA, {11, 16});
        }).find("must be [5 r, 16] for 5 experts") != std::string::npos);
  CHECK(test::error_of([] { parts_of(kGateUpB, {60, 10}); }).find("must be [64, r 5]") != std::string::npos);
  CHECK(test::error_of([] {
          parts_of("model.layers.0.mlp.experts.lora_A.weight", {10, 32});
        }).find("the base has no such experts") != std::string::npos);
  LoraConfig lora{.targets = Texts{"q_proj"}};
  CHECK(
      test::error_of([&] { select_experts(lora, Texts{"mlp.gate.weight"}, "qwen3_moe"); }) ==
      "target_parameters: \"mlp.gate.weight\" is not supported, only those of experts are: gate_up_proj and "
      "down_proj");
}

TEST_CASE("a config of single experts selects layers of all, with twice the rank of gate and up") {
  LoraConfig lora{.rank = 4, .alpha = 8, .targets = Texts{"q_proj", "w1", "w2", "w3"}};
  select_experts(lora, {}, "mixtral");
  const std::string experts = "model.layers.0.block_sparse_moe.experts.";
  const Adapters adapters = adapters_of(lora, {experts + "gate_up_proj", experts + "down_proj"}).adapters;
  CHECK(adapters.at(experts + "gate_up_proj").rank == 8);
  CHECK(adapters.at(experts + "gate_up_proj").scale == 2);
  CHECK(adapters.at(experts + "down_proj").rank == 4);
  CHECK(adapters.at(experts + "down_proj").scale == 2);
  lora = {.rank = 4, .alpha = 8, .targets = Texts{"w1", "w3"}, .rslora = true};
  select_experts(lora, {}, "mixtral");
  CHECK(adapters_of(lora, {experts + "gate_up_proj"}).adapters.begin()->second.scale == doctest::Approx(4));
}

TEST_CASE("adapters that PEFT would not open are named") {
  const std::string shared = "model.layers.1.mlp.shared_experts.up_proj";
  const Adapters adapters{
      {"model.layers.0.self_attn.q_proj", {}}, {"model.layers.1.mlp.experts.down_proj", {}}, {shared, {}}};
  CHECK(layer_lost_in_peft(adapters, "glm4_moe") == shared);
  CHECK(layer_lost_in_peft(adapters, "qwen2_moe") == "");
  CHECK(layer_lost_in_peft({{"model.layers.1.mlp.experts.down_proj", {}}}, "glm4_moe") == "");
}
