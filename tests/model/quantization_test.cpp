#include "model/quantization.h"

#include "model/lora.h"
#include "model/model.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

ModelConfig small(const std::string& family) {
  ModelConfig c{.family = family, .layers = 2, .hidden = 48, .heads = 3, .ffn = 80, .vocab = 61};
  c.max_positions = 16;
  return resolved(c);
}

QuantizedChoice chosen(const QuantConfig& quant, const LoraConfig& lora = {}) {
  Arena tables("tables", Device::cpu());
  return choose_quantized(quant, lora, Model(small("llama"), tables));
}

}  // namespace

TEST_CASE("the linear layers of all blocks are quantized, but not the head or what is trained in full") {
  const auto all = chosen({.base = FourBitKind::nf4}).weights;
  CHECK(all.size() == 14);
  CHECK(!all.contains("lm_head"));
  CHECK(all.at("model.layers.1.mlp.down_proj") == FourBitFormat{});
  const QuantizedChoice some = chosen({.base = FourBitKind::fp4,
                                       .block = 128,
                                       .nested = true,
                                       .compute = Precision::bf16,
                                       .skip = {"layers.0", "q_pro"}},
                                      {.rank = 4, .save_modules = {"down_proj"}});
  CHECK(some.weights.size() == 6);
  CHECK(some.weights.begin()->first.starts_with("model.layers.1."));
  CHECK(!some.weights.contains("model.layers.1.mlp.down_proj"));
  CHECK(some.weights.at("model.layers.1.self_attn.q_proj") ==
        FourBitFormat{.kind = FourBitKind::fp4, .block = 128, .nested = true, .compute = DType::bf16});
  CHECK(some.warnings == std::vector<std::string>{"quant.skip: \"q_pro\" matches no linear layer"});
}

TEST_CASE("a model without a layer to quantize, or with an odd block size, is refused") {
  CHECK(test::error_of([] { chosen({.base = FourBitKind::nf4, .skip = {"layers"}}); }) ==
        "quant.base = \"nf4\", but quant.skip and lora.save_modules leave no layer to quantize");
  CHECK(test::error_of([] { chosen({.base = FourBitKind::nf4, .block = 96}); }) ==
        "quant.block is 96, must be a power of two from 32 to 4096");
}

TEST_CASE("a quantized weight is declared in parts of their own dtypes and counts as its elements") {
  for (const char* family : {"llama", "gpt2"}) {
    CAPTURE(family);
    ModelConfig config = small(family);
    Arena tables("tables", Device::cpu());
    const Model plain(config, tables);
    config.quantized = choose_quantized({.base = FourBitKind::nf4, .nested = true}, {}, plain).weights;
    const Model model(config, tables);
    CHECK(model.parameter_count() == plain.parameter_count());
    CHECK(linear_layers(model) == linear_layers(plain));
    CHECK(leaf_modules(model) == leaf_modules(plain));
    std::vector<std::string> parts;
    const std::string weight =
        str(std::string(family) == "gpt2" ? "transformer.h.1.mlp.c_fc" : "model.layers.1.mlp.gate_proj",
            ".weight");
    const int64_t elements = 48 * 80, blocks = (elements + 63) / 64;
    for (const ParamList& list : model.param_lists())
      for (const ParamSpec& spec : list.specs())
        if (spec.name.starts_with(weight)) {
          CHECK(!spec.trainable);
          parts.push_back(str(spec.name.substr(weight.size()), ' ', *spec.dtype, ' ', spec.shape.size()));
        }
    CHECK(parts == std::vector<std::string>{str(" u8 ", elements / 2), str(".absmax u8 ", blocks),
                                            ".quant_map f32 16",
                                            str(".nested_absmax f32 ", (blocks + 255) / 256),
                                            ".nested_quant_map f32 256", ".nested_offset f32 1"});
  }
}
