#include "train/step/flops.h"

namespace flatshard {

FlopsPerToken flops_per_token(const Model& model, int64_t seq_len) {
  const ModelConfig& c = model.config();
  int64_t weights = *c.tied ? c.vocab * c.hidden : 0;  // the head's product
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      if (spec.role == ParamRole::weight) weights += spec.shape.size();
  const double products = 6.0 * static_cast<double>(weights);
  const double attention =
      12.0 * static_cast<double>(c.layers) * static_cast<double>(c.heads * c.head_dim * seq_len);
  return {.full = products + attention, .causal = products + attention / 2};
}

}  // namespace flatshard
