#pragma once
// The layers of a model that are quantized, and the sizes of their weights. QuantConfig (quantization.h) and
// `ckpt quantize` use the same rule.

#include <map>
#include <string>
#include <vector>

#include "model/quantized_part.h"

namespace flatshard {

class Model;

struct LayersToQuantize {
  std::vector<std::string> paths, skipped;
  std::vector<std::string> unmatched;  // entries of `skip` that match nothing
};

// Selects every linear layer except the output head, unless an entry of `skip` names it, or a module that
// contains it, by whole components of its path.
LayersToQuantize layers_to_quantize(const Model& model, const std::vector<std::string>& skip);

// The weights of the layers with these paths. `plain` is the model without quantization.
FourBitWeights four_bit_weights(const Model& plain, const std::map<std::string, FourBitFormat>& formats);

}  // namespace flatshard
