#include "model/param_selection.h"

#include "comm/flat_layout.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Names = std::vector<std::string>;

// A model of two blocks with adapters on q, k and v of the second, without memory.
class Adapted {
 public:
  explicit Adapted(const Names& saved, const Names& no_decay = {}) {
    select_adapter_params(model_, saved, no_decay);
  }

  // The names of parameters that are trained, or that are decayed, in model order.
  Names trained() const {
    return names([](const ParamSpec& spec) { return spec.trainable; });
  }
  Names decayed_adapters() const {
    return names([](const ParamSpec& spec) { return spec.role == ParamRole::adapter && spec.decay; });
  }
  int64_t trained_elements() const { return trainable_count(model_); }

 private:
  template <class Predicate>
  Names names(Predicate&& predicate) const {
    Names found;
    for (const ParamList& list : model_.param_lists())
      for (const ParamSpec& spec : list.specs())
        if (predicate(spec)) found.push_back(spec.name);
    return found;
  }
  static ModelConfig config() {
    ModelConfig c{.family = "llama", .layers = 2, .hidden = 16, .heads = 2, .ffn = 24, .vocab = 31};
    for (const char* layer : {"q_proj", "k_proj", "v_proj"})
      c.adapters[str("model.layers.1.self_attn.", layer)] = {.rank = 3, .scale = 1};
    return resolved(c);
  }

  Arena tables_{"tables", Device::cpu()};
  Model model_{config(), tables_};
};

const std::string kAttention = "model.layers.1.self_attn.";

const Names kAdapters{kAttention + "q_proj.lora_A.weight", kAttention + "k_proj.lora_A.weight",
                      kAttention + "v_proj.lora_A.weight", kAttention + "q_proj.lora_B.weight",
                      kAttention + "k_proj.lora_B.weight", kAttention + "v_proj.lora_B.weight"};

Names with_adapters(Names before, const Names& after) {
  before.insert(before.end(), kAdapters.begin(), kAdapters.end());
  before.insert(before.end(), after.begin(), after.end());
  return before;
}

}  // namespace

TEST_CASE("a model with adapters trains only these, and the modules that are saved in full") {
  CHECK(Adapted({}).trained() == kAdapters);
  CHECK(Adapted({}).trained_elements() == 3 * 3 * (16 + 16));
  CHECK(Adapted({"lm_head"}).trained() == with_adapters({}, {"lm_head.weight"}));
  CHECK(Adapted({"embed_tokens", "model.norm"}).trained() ==
        with_adapters({"model.embed_tokens.weight"}, {"model.norm.weight"}));
  CHECK(Adapted({"layers.0.input_layernorm"}).trained() ==
        with_adapters({"model.layers.0.input_layernorm.weight"}, {}));
  CHECK(Adapted({"lm_head"}).trained_elements() == 3 * 3 * (16 + 16) + 31 * 16);
}

TEST_CASE("sets of layers that are added after parameters were selected share the selection") {
  Arena tables("tables", Device::cpu());
  Model model(resolved({.family = "llama", .layers = 2, .hidden = 16, .heads = 2, .ffn = 16, .vocab = 31}),
              tables);
  select_params(model, {"*q_proj*", "*norm*"}, {"norm", "*v_proj*"});
  const auto selection = [&] {
    std::string text;
    for (const ParamList& list : model.param_lists())
      for (const ParamSpec& spec : list.specs())
        text += str(spec.name, spec.trainable, spec.decay, spec.joined, ' ');
    return text;
  };
  const std::string before = selection();
  const int64_t trained = trainable_count(model);
  CHECK(trained == 2 * 16 * 16 + 5 * 16);
  model.add_layer_sets(3, [](int layer) { return layer != 1; });
  CHECK(selection() == before);
  CHECK(trainable_count(model) == trained);
  CHECK(&model.layer(2, 0) != &model.layer(2, 2));
}

TEST_CASE("an entry of lora.save_modules without a match is refused with an example") {
  for (const char* wrong : {"head", "lm_haed", "lm_head.weight", "q_proj.lora_A"}) {
    CAPTURE(wrong);
    CHECK(test::error_of([&] {
            Adapted({"lm_head", wrong});
          }) ==
          str("lora.save_modules: \"", wrong, "\" matches no parameter; names look like lm_head.weight"));
  }
}

TEST_CASE("adapters are decayed unless optimizer.no_decay names them") {
  CHECK(Adapted({}, {"norm", "bias", "embed"}).decayed_adapters() == kAdapters);
  CHECK(Adapted({}, {"*lora_B*"}).decayed_adapters() == Names(kAdapters.begin(), kAdapters.begin() + 3));
  CHECK(test::error_of([] { Adapted({}, {"*lora_C*"}); }).starts_with("optimizer.no_decay: \"*lora_C*\""));
}

TEST_CASE("weights that a layer joins are separate where only some are trained or decay") {
  const auto joined = [](const std::vector<std::string>& trainable,
                         const std::vector<std::string>& no_decay) {
    Arena tables("tables", Device::cpu());
    Model model(resolved({.family = "qwen2", .layers = 1, .hidden = 256, .heads = 1, .ffn = 256, .vocab = 8}),
                tables);
    select_params(model, trainable, no_decay);
    std::string names;
    for (const ParamSpec& spec : model.param_lists()[1].specs())
      if (spec.joined) names += spec.name.substr(sizeof("model.layers.0.") - 1) + " ";
    CHECK(test::error_of([&] { FlatLayout::trainable(model.param_lists()[1], 1); }).empty());
    return names;
  };
  const std::string biases = "self_attn.k_proj.bias self_attn.v_proj.bias ", mlp = "mlp.up_proj.weight ";
  CHECK(joined({"*"}, {"bias"}) == "self_attn.k_proj.weight self_attn.v_proj.weight " + biases + mlp);
  CHECK(joined({"*q_proj.weight", "*.mlp.*"}, {}) == "self_attn.v_proj.weight " + biases + mlp);
  CHECK(joined({"*"}, {"*v_proj.*", "*.up_proj.*"}) == "self_attn.k_proj.weight self_attn.k_proj.bias ");
}
