#pragma once
// Shapes of published models, so that a plan needs neither their folders nor their numbers in a config.

#include <string>
#include <vector>

#include "train/config/config.h"

namespace flatshard {

struct PublishedShape {
  const char* name;    // llama-3.1-70b
  const char* source;  // the repository on Hugging Face whose config.json has these numbers
  const char* family;
  int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
  bool tied = false;
  // These are set for a mixture of experts; an expert_ffn of 0 stands for ffn.
  int64_t experts = 0, experts_per_token = 0, expert_ffn = 0;

  // The model with this shape. Values on which no plan depends, such as epsilons and the scaling of RoPE, are
  // the family's.
  ModelConfig model() const;
};

const std::vector<PublishedShape>& published_shapes();
std::vector<std::string> published_shape_names();

// Replaces the keys of the model, and model.init_from, by a shape. A key of the model on the command line, or
// an adapter, is an Error.
void take_published_shape(LoadedConfig& loaded, const std::string& name);

}  // namespace flatshard
