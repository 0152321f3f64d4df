#pragma once
// Reads the components of a tokenizer.json other than its model, strictly: an unknown member is an Error.

#include "runtime/json_reader.h"
#include "text/tokenizer/tokenizer_file.h"

namespace flatshard {

// A member that must not be empty.
std::string text_of(const JsonReader& component, const char* member);
// Returns the member "type", and adds it to the component's place in errors.
std::string type_of(JsonReader& component);
// Throws an Error if a member is neither read yet nor one of these.
void allow(const JsonReader& component, std::initializer_list<const char*> members);
[[noreturn]] void unsupported(const JsonReader& component, const std::string& what);

void read_normalizer(JsonReader component, Normalizer* normalizer);
// Sets `byte_level`, too: whether the model's words are bytes.
void read_pre_tokenizer(JsonReader component, PreTokenizer* pre_tokenizer, bool* byte_level);
void read_post_processor(JsonReader component, TokenizerParts* parts);

// The decoder in two parts: `edits` change each token alone, in order; `rules` apply to all tokens.
struct DecoderSteps {
  std::vector<std::function<std::string(const std::string&)>> edits;
  Decoder::Rules rules;
  bool fused = false;
};
void read_decoder(JsonReader component, DecoderSteps* steps);

}  // namespace flatshard
