#include "model/quantized_part.h"

#include <algorithm>

namespace flatshard {
namespace {

constexpr QuantizedPart kParts[] = {QuantizedPart::codes,        QuantizedPart::absmax,
                                    QuantizedPart::table,        QuantizedPart::nested_absmax,
                                    QuantizedPart::nested_table, QuantizedPart::nested_offset};
constexpr size_t kPlainParts = 3;

}  // namespace

std::vector<QuantizedPart> parts_of(const FourBitFormat& format) {
  return {std::begin(kParts), format.nested ? std::end(kParts) : std::begin(kParts) + kPlainParts};
}

const char* suffix_of(QuantizedPart part) {
  switch (part) {
    case QuantizedPart::codes:
      return "";
    case QuantizedPart::absmax:
      return ".absmax";
    case QuantizedPart::table:
      return ".quant_map";
    case QuantizedPart::nested_absmax:
      return ".nested_absmax";
    case QuantizedPart::nested_table:
      return ".nested_quant_map";
    case QuantizedPart::nested_offset:
      return ".nested_offset";
  }
  return "";
}

DType dtype_of_part(const FourBitWeight& weight, QuantizedPart part) {
  const bool is_u8 = part == QuantizedPart::codes || (part == QuantizedPart::absmax && weight.format.nested);
  return is_u8 ? DType::u8 : DType::f32;
}

int64_t elements_of_part(const FourBitWeight& weight, QuantizedPart part) {
  switch (part) {
    case QuantizedPart::codes:
      return code_bytes(weight.elements());
    case QuantizedPart::absmax:
      return weight.blocks();
    case QuantizedPart::table:
      return std::tuple_size_v<FourBitTable>;
    case QuantizedPart::nested_absmax:
      return block_count(weight.blocks(), kNestedBlock);
    case QuantizedPart::nested_table:
      return 256;
    case QuantizedPart::nested_offset:
      return 1;
  }
  return 0;
}

std::optional<PartOfWeight> find_part(const FourBitWeights& weights, const std::string& name) {
  for (const QuantizedPart part : kParts) {
    const std::string suffix = suffix_of(part);
    if (!name.ends_with(suffix)) continue;
    const auto weight = weights.find(name.substr(0, name.size() - suffix.size()));
    if (weight == weights.end()) continue;
    const std::vector<QuantizedPart> parts = parts_of(weight->second.format);
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) return {};
    return PartOfWeight{.weight = weight, .part = part};
  }
  return {};
}

}  // namespace flatshard
