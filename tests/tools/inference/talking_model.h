#pragma once
// A model folder with a tokenizer whose tokens are printable ASCII characters, spaces and line breaks, and
// the special tokens of ChatML, of which <|im_end|> ends a text.

#include <string>

namespace flatshard::test {

inline constexpr int kTalkingVocab = 98;

// A small random llama in a new folder of this name.
void write_talking_model(const std::string& folder);
void write_text(const std::string& path, const std::string& text);
std::string text_of(const std::string& path);

}  // namespace flatshard::test
