#pragma once
// The Modelfile from which Ollama creates a model with a GGUF file.

#include <optional>
#include <string>
#include <vector>

#include "hub/text_codec.h"
#include "model/config.h"

namespace flatshard {

struct Modelfile {
  std::string model{}, adapter{};  // files in the folder of the Modelfile; "": none
  int64_t context = 0;             // context length in tokens; 0: Ollama's default
  std::string go_template{};       // template in Ollama's language
  std::vector<std::string> stops{};
  bool chat_template = false;  // whether the model has a chat template
  bool has_template = false;   // whether go_template is this template

  std::string text() const;
};

Modelfile modelfile_of(const TextCodec& codec, const ModelConfig& config, const std::string& model);

// Converts a chat template to the language of Ollama's templates: the text before and after a message of each
// role, and before the answer. Returns nothing unless the result renders a number of conversations like the
// template, without the BOS token at their start, which Ollama adds.
std::optional<std::string> ollama_template(const ChatTemplate& chat_template);

}  // namespace flatshard
