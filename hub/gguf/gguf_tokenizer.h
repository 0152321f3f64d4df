#pragma once
// Tokenizers in GGUF files. llama.cpp knows two kinds of byte-pair encoding:
//   "gpt2"   tokens are spelled in the letters of byte_letters.h, and text is cut into words by one of a list
//            of patterns, which the file names
//   "llama"  tokens are text with U+2581 for spaces; of two neighbors that make a token, those merge first
//            whose token has the highest score

#include <span>
#include <string>
#include <vector>

#include "hub/gguf/gguf_file.h"
#include "hub/tokenizer_files.h"

namespace flatshard {

struct GgufTokenizerSource {
  std::string folder;           // of a model, with its tokenizer; "": none
  int64_t vocab = 0;            // of the model
  std::vector<int32_t> ends{};  // tokens that end a text
  std::string chat_template{};  // "": none
  std::string pattern{};        // llama.cpp's name of the pattern; "": found by the tokenizer's own
};

// Writes the keys of a tokenizer. Returns what the user should know. An Error names what llama.cpp lacks.
std::vector<std::string> put_gguf_tokenizer(GgufWriter& out, const GgufTokenizerSource& source);

// The files of the same tokenizer in a model folder: tokenizer.json, tokenizer_config.json and
// generation_config.json. None if the file has no tokenizer.
TokenizerFiles tokenizer_files_of(const GgufFile& file);

// The folder with the tokenizer of a published model: the model's own folder, or, for a GGUF file, a
// temporary one, which exists until this process ends.
std::string tokenizer_folder_of(const std::string& model);

}  // namespace flatshard
