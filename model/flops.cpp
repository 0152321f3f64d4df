#include "model/flops.h"

#include "model/names.h"

namespace flatshard {

FlopsPerToken flops_per_token(const Model& model, int64_t seq_len) {
  const ModelConfig& c = model.config();
  // A weight takes part in a product of the forward pass, one for dx, and, unless frozen, one for dw.
  int64_t trained = 0, frozen = 0;
  for (size_t at = static_cast<size_t>(model.embedding_layer()); at < model.param_lists().size(); ++at)
    for (const ParamSpec& spec : model.param_lists()[at].specs()) {
      const bool multiplies = spec.role == ParamRole::weight || spec.role == ParamRole::adapter ||
                              (*c.tied && spec.name == param_names(c.family).embedding + ".weight");
      if (multiplies) (spec.trainable ? trained : frozen) += spec.parameter_count();
    }
  const double products = 6.0 * static_cast<double>(trained) + 4.0 * static_cast<double>(frozen);
  const double attention =
      12.0 * static_cast<double>(c.layers) * static_cast<double>(c.heads * c.head_dim * seq_len);
  const double forward = 2.0 * static_cast<double>(trained + frozen) + attention / 6;
  return {.full = products + attention, .causal = products + attention / 2, .forward = forward};
}

}  // namespace flatshard
