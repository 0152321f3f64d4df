#include "train/config/model_fields.h"

namespace flatshard {
namespace {

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& f : families()) names.push_back(f.name);
  return names;
}

}  // namespace

std::vector<Field> model_fields(Config& c) {
  ModelConfig& model = c.model;
  return {
      {"model.family", &model.family, "architecture family", family_names()},
      {"model.layers", &model.layers, "number of transformer blocks", {}, 0},
      {"model.hidden", &model.hidden, "width of the residual stream", {}, 0},
      {"model.heads", &model.heads, "query heads", {}, 0},
      {"model.kv_heads", &model.kv_heads, "key/value heads; 0 = model.heads", {}, 0},
      {"model.head_dim", &model.head_dim, "head dimension; 0 = hidden / heads", {}, 0},
      {"model.ffn", &model.ffn, "MLP width; 0 = 4 x hidden", {}, 0},
      {"model.vocab", &model.vocab, "vocabulary size", {}, 0},
      {"model.max_positions", &model.max_positions, "largest position; 0 = data.seq_len", {}, 0},
      {"model.tied", &model.tied, "tie the output head to the token embedding"},
      {"model.norm_eps", &model.norm_eps, "epsilon of the norms", {}, 0, kMostFloat},
      {"model.rope_theta", &model.rope_theta, "RoPE base frequency", {}, 1},
      {"model.window", &model.window, "sliding-window size of attention; 0 = full attention", {}, 0},
      {"model.full_attention_every",
       &model.full_attention_every,
       "every n-th block has full attention in spite of model.window; 0 = none",
       {},
       0},
      {"model.no_rope_every", &model.no_rope_every, "every n-th block has no RoPE; 0 = none", {}, 0},
      {"model.query_scalar",
       &model.query_scalar,
       "attention scores are divided by the square root of this; 0 = head dimension",
       {},
       0},
      {"model.attention_softcap",
       &model.attention_softcap,
       "bound of attention scores, c tanh(score / c); 0 = none",
       {},
       0,
       kMostFloat},
      {"model.logit_softcap",
       &model.logit_softcap,
       "bound of the logits, c tanh(logit / c); 0 = none",
       {},
       0,
       kMostFloat},
      {"model.qk_norm", &model.qk_norm, "normalize q and k; per head, in olmo2 over all heads"},
      {"model.qkv_bias", &model.qkv_bias, "biases on q, k and v"},
      {"model.init_from", &c.init_from,
       "Hugging Face model folder with the initial weights; it decides all other model keys, except that "
       "model.vocab may be larger: new rows are the mean of the existing ones"},
      {"model.adapter", &c.adapter,
       "folder of a LoRA adapter, as PEFT writes it, to continue training; with lora.rank, the adapter is "
       "merged into the frozen weights instead"},
      {"model.pad_to_multiple_of",
       &c.pad_to_multiple_of,
       "round the vocabulary up to a multiple of this",
       {},
       1,
       INT32_MAX},
      {"model.trainable", &c.trainable,
       "name patterns of the parameters to train (* matches any text); the others are frozen"},
      {"model.rope_scaling.kind",
       &model.rope_scaling.kind,
       "RoPE scaling method",
       {"none", "linear", "llama3"}},
      {"model.rope_scaling.factor", &model.rope_scaling.factor, "RoPE scaling factor", {}, 1},
      {"model.rope_scaling.low_freq_factor", &model.rope_scaling.low_freq_factor,
       "llama3: frequencies below this are fully scaled"},
      {"model.rope_scaling.high_freq_factor", &model.rope_scaling.high_freq_factor,
       "llama3: frequencies above this are not scaled"},
      {"model.rope_scaling.original_max_positions",
       &model.rope_scaling.original_max_positions,
       "llama3: context length before scaling",
       {},
       1},
  };
}

}  // namespace flatshard
