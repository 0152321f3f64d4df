#include "train/setup/wrapping.h"

#include <map>

#include "comm/flat_layout.h"
#include "model/param_selection.h"
#include "runtime/check.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

const ModelConfig kMistral7b{.family = "mistral",
                             .layers = 32,
                             .hidden = 4096,
                             .heads = 32,
                             .kv_heads = 8,
                             .ffn = 14336,
                             .vocab = 32000};
const ModelConfig kSmallGpt2{
    .family = "gpt2", .layers = 3, .hidden = 16, .heads = 2, .ffn = 64, .vocab = 50, .max_positions = 8};

// A model and how it is wrapped.
struct Wrapped {
  Wrapped(const ModelConfig& config, const WrapOptions& options, std::vector<std::string> trainable = {"*"})
      : model(resolved(config), tables, layer_cut(options)),
        wrapping((select_params(model, trainable, {}), model), options) {}

  int64_t size(const std::string& unit) const { return wrapping.units()[index(unit)].parameter_count(); }
  const UnitRole& role(const std::string& unit) const { return wrapping.roles()[index(unit)]; }
  size_t index(const std::string& unit) const {
    for (const UnitRole& role : wrapping.roles())
      if (role.name == unit) return static_cast<size_t>(role.index);
    FAIL("no unit is named ", unit);
    return 0;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const UnitRole& role : wrapping.roles()) all.push_back(role.name);
    return all;
  }

  Arena tables{"tables", Device::cpu()};
  Model model;
  Wrapping wrapping;
};

}  // namespace

TEST_CASE("by default a block is a unit, and parameters outside blocks are in root units") {
  const Wrapped w(kMistral7b, {});
  CHECK(w.names().size() == 34);
  CHECK(w.size("model.layers.0") == 218112000);  // as of the published model
  CHECK(w.size("model.layers.31") == 218112000);
  CHECK(w.size("root, first") == 32000 * 4096);
  CHECK(w.size("root, last") == 32000 * 4096 + 4096);
  CHECK(w.role("root, last").root);
  CHECK_FALSE(w.role("model.layers.7").root);
}

TEST_CASE("attention and MLP by themselves are 64 units of a Mistral, with the norms in a root unit") {
  const Wrapped w(kMistral7b, {.policy = WrapPolicy::attention_mlp});
  CHECK(w.names().size() == 2 * 32 + 3);
  CHECK(w.size("model.layers.3.self_attn") == 41943040);
  CHECK(w.size("model.layers.3.mlp") == 176160768);
  CHECK(w.size("root, blocks") == 2 * 32 * 4096);
  CHECK(w.role("root, blocks").layers == 64);
  CHECK(w.wrapping.layer_count() == 66);
  CHECK(w.role("model.layers.3.mlp").layers == 1);
}

TEST_CASE("the experts of a block are a unit of their own, which expert ranks divide") {
  const ModelConfig mixture{.family = "qwen2_moe",
                            .layers = 2,
                            .hidden = 32,
                            .heads = 2,
                            .ffn = 48,
                            .vocab = 31,
                            .experts = 4,
                            .experts_per_token = 2,
                            .expert_ffn = 16,
                            .shared_ffn = 8,
                            .dense_blocks = {1}};
  for (const WrapPolicy policy : {WrapPolicy::block, WrapPolicy::attention_mlp}) {
    CAPTURE(policy);
    const Wrapped w(mixture, {.policy = policy, .expert_ranks = 2});
    const std::string experts = "model.layers.0.mlp.experts";
    CHECK(w.size(experts) == 4 * 3 * 16 * 32);
    CHECK(w.role(experts).parts == 2);
    for (const UnitRole& role : w.wrapping.roles()) CHECK((role.parts == 1 || role.name == experts));
    for (const ParamSpec& spec : w.wrapping.units()[w.index(experts)].specs())
      CHECK(spec.name.starts_with(experts + "."));
  }
}

TEST_CASE("every parameter of the model is in exactly one unit") {
  const auto check_places = [](const Wrapped& w) {
    std::map<std::string, int> seen;
    int64_t elements = 0;
    for (const ParamList& unit : w.wrapping.units()) {
      elements += unit.parameter_count();
      for (const ParamSpec& spec : unit.specs()) ++seen[spec.name];
    }
    CHECK(elements == w.model.parameter_count());
    for (const auto& [name, count] : seen) {
      CAPTURE(name);
      CHECK(count == 1);
    }
    for (int layer = 0; layer < w.model.layer_count(); ++layer) {
      const ParamList& list = w.model.param_lists()[static_cast<size_t>(w.model.param_list_of(layer))];
      const std::vector<Wrapping::Place>& places = w.wrapping.places(layer);
      REQUIRE(places.size() == list.specs().size());
      for (size_t i = 0; i < places.size(); ++i) {
        CHECK(w.wrapping.units()[static_cast<size_t>(places[i].unit)][places[i].id].name ==
              list.specs()[i].name);
        CHECK(w.wrapping.uses(layer, places[i].unit));
      }
    }
  };
  for (const WrapOptions& options :
       {WrapOptions{}, WrapOptions{.policy = WrapPolicy::attention_mlp},
        WrapOptions{.policy = WrapPolicy::pattern, .patterns = {"*.attn", "*.1"}},
        WrapOptions{.policy = WrapPolicy::size, .size = 2000},
        WrapOptions{.policy = WrapPolicy::size, .size = 5000}, WrapOptions{.policy = WrapPolicy::none},
        WrapOptions{.replicate = {"*ln*", "transformer.w*"}}})
    check_places(Wrapped(kSmallGpt2, options));
}

TEST_CASE("of nested modules the outermost that matches is a unit") {
  const Wrapped w(kSmallGpt2,
                  {.policy = WrapPolicy::pattern, .patterns = {"*.mlp", "*.mlp.c_fc", "transformer.h.1"}});
  CHECK(w.names() == std::vector<std::string>{"root, first", "root, blocks", "transformer.h.0.mlp",
                                              "transformer.h.1", "transformer.h.2.mlp"});
}

TEST_CASE("by size the innermost modules that are large enough are units") {
  // c_attn 816, c_proj 272, c_fc 1088, c_proj 1040: attention 1088, MLP 2128, a block 3280 with its norms.
  const Wrapped large(kSmallGpt2, {.policy = WrapPolicy::size, .size = 3000});
  CHECK(large.size("transformer.h.2") == 3280);
  const Wrapped middle(kSmallGpt2, {.policy = WrapPolicy::size, .size = 1050});
  CHECK(middle.size("transformer.h.2.mlp.c_fc") == 1088);
  CHECK(middle.size("transformer.h.2.attn") == 1088);
  CHECK(middle.size("transformer.h.2") == 1040 + 64);  // what is left of it
  const Wrapped all(kSmallGpt2, {.policy = WrapPolicy::size, .size = 9000});
  CHECK(all.size("transformer.h") == 3 * 3280);
  CHECK(all.role("transformer.h").layers == 3);
}

TEST_CASE("the whole model can be one unit that every layer uses") {
  const Wrapped w(kSmallGpt2, {.policy = WrapPolicy::none});
  CHECK(w.names() == std::vector<std::string>{"model"});
  CHECK(w.role("model").layers == w.model.layer_count());
}

TEST_CASE("replicated parameters are unsharded and in no other unit") {
  const Wrapped w(kMistral7b, {.replicate = {"*norm*", "model.embed_tokens.weight"}});
  CHECK(w.size("replicated, blocks") == 2 * 32 * 4096);
  CHECK(w.size("replicated, first") == 32000 * 4096);
  CHECK(w.size("replicated, last") == 4096);
  CHECK(w.size("model.layers.0") == 218112000 - 2 * 4096);
  CHECK(w.role("replicated, last").replicated);
  CHECK_FALSE(w.role("root, last").replicated);
}

TEST_CASE(
    "a backward pass ends at the first layer with something to train, and units count the layers it "
    "reaches") {
  const Wrapped w(kMistral7b, {.policy = WrapPolicy::attention_mlp},
                  {"*layers.30.*norm*", "*layers.31.mlp*"});
  CHECK(w.wrapping.first_trained_layer() == 1 + 2 * 30);
  CHECK(w.role("root, blocks").backward_layers == 4);
}

TEST_CASE("joined parameters follow each other in one unit, however modules are wrapped and replicated") {
  ModelConfig config{.family = "llama", .layers = 2, .hidden = 16, .heads = 2, .ffn = 24, .vocab = 50};
  for (const char* layer :
       {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"})
    config.adapters[str("model.layers.1.", layer)] = {.rank = 3, .scale = 1};
  for (const WrapOptions& options :
       {WrapOptions{}, WrapOptions{.policy = WrapPolicy::attention_mlp},
        WrapOptions{.policy = WrapPolicy::pattern, .patterns = {"*.k_proj"}},
        WrapOptions{.policy = WrapPolicy::pattern, .patterns = {"*_proj"}},
        WrapOptions{.policy = WrapPolicy::pattern, .patterns = {"*.lora_A"}},
        WrapOptions{.policy = WrapPolicy::size, .size = 20},
        WrapOptions{.policy = WrapPolicy::size, .size = 300}, WrapOptions{.policy = WrapPolicy::none},
        WrapOptions{.replicate = {"*.q_proj.*"}}, WrapOptions{.replicate = {"*.up_proj.*"}},
        WrapOptions{.policy = WrapPolicy::size, .size = 20, .replicate = {"*.v_proj.*", "*lora_B*"}}}) {
    CAPTURE(options.policy);
    const Wrapped w(config, options);
    int joined = 0;
    for (int layer = 0; layer < w.wrapping.layer_count(); ++layer) {
      const ParamList& list = w.model.param_lists()[static_cast<size_t>(w.model.param_list_of(layer))];
      const std::vector<Wrapping::Place>& places = w.wrapping.places(layer);
      for (size_t i = 0; i < places.size(); ++i) {
        if (!list.specs()[i].joined) continue;
        CHECK(places[i].unit == places[i - 1].unit);
        CHECK(places[i].id.index == places[i - 1].id.index + 1);
        ++joined;
      }
    }
    CHECK(joined == 2 + 1 + 2 * 2);  // the adapters of block 1; k and v of both blocks
    for (const ParamList& unit : w.wrapping.units())
      CHECK(test::error_of([&] { FlatLayout::trainable(unit, 2); }).empty());
  }
}

TEST_CASE("a wrap pattern that matches nothing is refused with an example") {
  const auto message = [](const WrapOptions& options) {
    try {
      Wrapped w(kSmallGpt2, options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(message({.policy = WrapPolicy::pattern, .patterns = {"*.mpl"}}).find("\"*.mpl\" matches no module") !=
        std::string::npos);
  CHECK(message({.policy = WrapPolicy::pattern}).find("needs parallel.wrap_patterns") != std::string::npos);
  CHECK(message({.policy = WrapPolicy::size}).find("needs parallel.wrap_size") != std::string::npos);
  CHECK(message({.patterns = {"*"}}).find("has no effect without") != std::string::npos);
  CHECK(message({.size = 3}).find("has no effect without") != std::string::npos);
  CHECK(message({.replicate = {"*nrom*"}}).find("\"*nrom*\" matches no parameter") != std::string::npos);
}
