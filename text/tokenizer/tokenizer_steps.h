#pragma once
// Reads the components of a tokenizer.json other than its model.

#include "text/tokenizer/json_component.h"
#include "text/tokenizer/tokenizer_file.h"

namespace flatshard {

void read_normalizer(JsonComponent component, Normalizer* normalizer);
// Sets `byte_level`, too: whether the model's words are bytes.
void read_pre_tokenizer(JsonComponent component, PreTokenizer* pre_tokenizer, bool* byte_level);
void read_post_processor(JsonComponent component, TokenizerParts* parts);

// The decoder in two parts: `edits` change each token alone, in order; `rules` apply to all tokens.
struct DecoderSteps {
  std::vector<std::function<std::string(const std::string&)>> edits;
  Decoder::Rules rules;
  bool fused = false;
};
void read_decoder(JsonComponent component, DecoderSteps* steps);

}  // namespace flatshard
