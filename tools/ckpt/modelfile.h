#pragma once
// The Modelfile from which Ollama makes a model of a GGUF file.

#include <optional>
#include <string>
#include <vector>

#include "hub/text_codec.h"
#include "model/config.h"

namespace flatshard {

struct Modelfile {
  std::string model{}, adapter{};  // files beside it; "": none
  int64_t context = 0;             // in tokens; 0: Ollama's default
  std::string go_template{};       // in the language of Ollama's templates
  std::vector<std::string> stops{};
  bool chat_template = false;  // the model has one
  bool has_template = false;   // and it is go_template

  std::string text() const;
};

Modelfile modelfile_of(const TextCodec& codec, const ModelConfig& config, const std::string& model);

// A chat template in the language of Ollama's: what it writes before and after a message of each role, and
// before the answer. Empty unless that renders a number of conversations as the template does, without the
// BOS token at their start, which Ollama adds.
std::optional<std::string> ollama_template(const ChatTemplate& chat_template);

}  // namespace flatshard
