#pragma once
// The parts of a 4-bit weight (kernels/four_bit.h), each of which is a tensor with its own name. For a weight
// P.weight with n elements in nb blocks they are
//   P.weight                   U8  (code_bytes(n))               codes
//   P.weight.absmax            F32 (nb), or U8 (nb) if nested    scales
//   P.weight.quant_map         F32 (16)                          table
//   P.weight.nested_absmax     F32 (block_count(nb, 256))        only if nested, as are the next two
//   P.weight.nested_quant_map  F32 (256)
//   P.weight.nested_offset     F32 (1)
// These are the names of bitsandbytes, in whose files nested_offset is not a tensor but a number in
// quant_state (quant_state.h).

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kernels/four_bit.h"

namespace flatshard {

enum class QuantizedPart { codes, absmax, table, nested_absmax, nested_table, nested_offset };

// A quantized weight: a matrix of `out` rows and `in` columns.
struct FourBitWeight {
  FourBitFormat format;
  int64_t out = 0, in = 0;

  int64_t elements() const { return out * in; }
  int64_t blocks() const { return block_count(elements(), format.block); }
};

// Keys are the names of weights, such as "model.layers.0.mlp.up_proj.weight".
using FourBitWeights = std::map<std::string, FourBitWeight>;

// The parts of a weight in this format, in the order above.
std::vector<QuantizedPart> parts_of(const FourBitFormat& format);

// The suffix of a part's name, such as ".absmax"; "" for the codes.
const char* suffix_of(QuantizedPart part);
DType dtype_of_part(const FourBitWeight& weight, QuantizedPart part);
int64_t elements_of_part(const FourBitWeight& weight, QuantizedPart part);

// The weight and the part that a name refers to. find_part() returns nullopt if the name is not a part of any
// of these weights.
struct PartOfWeight {
  FourBitWeights::const_iterator weight;
  QuantizedPart part;
};
std::optional<PartOfWeight> find_part(const FourBitWeights& weights, const std::string& name);

}  // namespace flatshard
