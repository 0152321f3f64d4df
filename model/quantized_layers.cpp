#include "model/quantized_layers.h"

#include "model/lora.h"
#include "model/model.h"
#include "model/names.h"

namespace flatshard {

LayersToQuantize layers_to_quantize(const Model& model, const std::vector<std::string>& skip) {
  LayersToQuantize layers;
  std::vector<bool> used(skip.size());
  for (const std::string& path : linear_layers(model)) {
    if (path == param_names(model.config().family).head) continue;
    bool skipped = false;
    for (size_t i = 0; i < skip.size(); ++i)
      if (is_inside(path, {skip[i]})) used[i] = skipped = true;
    (skipped ? layers.skipped : layers.paths).push_back(path);
  }
  for (size_t i = 0; i < skip.size(); ++i)
    if (!used[i]) layers.unmatched.push_back(skip[i]);
  return layers;
}

FourBitWeights four_bit_weights(const Model& plain, const std::map<std::string, FourBitFormat>& formats) {
  const bool transposed = param_names(plain.config().family).transposed_weights;
  FourBitWeights weights;
  for (const ParamList& list : plain.param_lists())
    for (const ParamSpec& spec : list.specs()) {
      const auto found = formats.find(spec.name.substr(0, spec.name.rfind('.')));
      if (found == formats.end() || spec.role != ParamRole::weight) continue;
      weights[spec.name] = {found->second, spec.shape[transposed ? 1 : 0], spec.shape[transposed ? 0 : 1]};
    }
  return weights;
}

}  // namespace flatshard
