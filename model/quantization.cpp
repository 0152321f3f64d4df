#include "model/quantization.h"

#include "model/lora.h"
#include "model/model.h"
#include "model/quantized_layers.h"

namespace flatshard {

std::optional<DType> compute_dtype(const QuantConfig& quant) {
  if (!quant.compute) return {};
  return dtype_in(*quant.compute);
}

QuantizedParams::QuantizedParams(ParamList& params, const std::string& path, const FourBitWeight& weight,
                                 const Init& init, double share)
    : weight_(weight) {
  for (const QuantizedPart part : parts_of(weight.format)) {
    const bool codes = part == QuantizedPart::codes;
    ids_[static_cast<size_t>(part)] = params.add({.name = path + ".weight" + suffix_of(part),
                                                  .shape = {elements_of_part(weight, part)},
                                                  .init = codes ? init : Init{},
                                                  .role = codes ? ParamRole::weight : ParamRole::quantized,
                                                  .trainable = false,
                                                  .dtype = dtype_of_part(weight, part),
                                                  .counts_as = codes ? weight.elements() : 0,
                                                  .share = share});
  }
}

FourBitMatrix QuantizedParams::matrix(const ParamView& p) const {
  const auto part = [&](QuantizedPart of) {
    const ParamId id = ids_[static_cast<size_t>(of)];
    return id.index < 0 ? Tensor{} : p[id];
  };
  return {.codes = part(QuantizedPart::codes),
          .absmax = part(QuantizedPart::absmax),
          .table = part(QuantizedPart::table),
          .nested_absmax = part(QuantizedPart::nested_absmax),
          .nested_table = part(QuantizedPart::nested_table),
          .nested_offset = part(QuantizedPart::nested_offset),
          .block = weight_.format.block,
          .shape = {weight_.out, weight_.in}};
}

QuantizedChoice choose_quantized(const QuantConfig& quant, const LoraConfig& lora, const Model& model) {
  check(is_four_bit_block(quant.block), "quant.block is ", quant.block, ", must be a power of two from ",
        kSmallestFourBitBlock, " to ", kLargestFourBitBlock);
  const FourBitFormat format{
      .kind = *quant.base, .block = quant.block, .nested = quant.nested, .compute = compute_dtype(quant)};
  const LayersToQuantize layers = layers_to_quantize(model, quant.skip);
  QuantizedChoice choice;
  for (const std::string& path : layers.paths)
    if (!is_inside(path, lora.save_modules)) choice.weights[path] = format;
  for (const std::string& entry : layers.unmatched)
    choice.warnings.push_back(str("quant.skip: \"", entry, "\" matches no linear layer"));
  check(!choice.weights.empty(), "quant.base = \"", *quant.base,
        "\", but quant.skip and lora.save_modules leave no layer to quantize");
  return choice;
}

}  // namespace flatshard
