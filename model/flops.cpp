#include "model/flops.h"

#include <algorithm>

#include "model/names.h"

namespace flatshard {

FlopsPerToken flops_per_token(const Model& model, int64_t seq_len) {
  const ModelConfig& c = model.config();
  // A weight takes part in a product of the forward pass, one for dx, and, unless frozen, one for dw.
  // An expert's weights count for the share of tokens that it expects.
  double trained = 0, frozen = 0, repeated = 0;
  const auto first = static_cast<size_t>(model.embedding_layer());
  const size_t head = first + 1 + static_cast<size_t>(c.layers * model.layers_of_block());
  for (size_t at = first; at < model.param_lists().size(); ++at)
    for (const ParamSpec& spec : model.param_lists()[at].specs()) {
      const bool multiplies = spec.role == ParamRole::weight || spec.role == ParamRole::adapter ||
                              (*c.tied && spec.name == param_names(c.family).embedding + ".weight");
      if (!multiplies) continue;
      const double count = static_cast<double>(spec.parameter_count()) * spec.share;
      (spec.trainable ? trained : frozen) += count;
      if (at > first && at < head) repeated += count;
    }
  const int64_t dense = c.layers - c.expert_blocks(),
                by_experts = c.experts_per_token * c.expert_ffn + c.shared_ffn;
  const int64_t of_last = (dense * c.ffn + c.expert_blocks() * by_experts) * c.hidden;
  repeated = std::max(repeated - static_cast<double>(of_last), 0.0);
  const double products = 6.0 * trained + 4.0 * frozen;
  const double attention =
      12.0 * static_cast<double>(c.layers) * static_cast<double>(c.heads * c.head_dim * seq_len);
  return {.full = products + attention,
          .causal = products + attention / 2,
          .repeated = 2.0 * repeated,
          .repeated_attention = attention / 6};
}

}  // namespace flatshard
