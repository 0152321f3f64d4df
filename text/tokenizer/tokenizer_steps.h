#pragma once
// The components of a tokenizer.json around its model, from JSON.

#include "text/tokenizer/json_component.h"
#include "text/tokenizer/tokenizer_file.h"

namespace flatshard {

void read_normalizer(JsonComponent component, Normalizer* normalizer);
// Also finds out whether the model's words are bytes.
void read_pre_tokenizer(JsonComponent component, PreTokenizer* pre_tokenizer, bool* byte_level);
void read_post_processor(JsonComponent component, TokenizerParts* parts);

// What the decoder does, in parts: to each token alone (`edits`, in order), and to all of them.
struct DecoderSteps {
  std::vector<std::function<std::string(const std::string&)>> edits;
  Decoder::Rules rules;
  bool fused = false;
};
void read_decoder(JsonComponent component, DecoderSteps* steps);

}  // namespace flatshard
