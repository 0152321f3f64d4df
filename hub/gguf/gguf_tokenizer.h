#pragma once
// Tokenizers in GGUF files. llama.cpp knows two kinds of byte-pair encoding:
//   "gpt2"   tokens are spelled in the letters of byte_letters.h, and text is cut into words by a pattern,
//            which the file names
//   "llama"  tokens are text with U+2581 for spaces; among neighbors that make a token, the pair whose token
//            has the highest score merges first

#include <span>
#include <string>
#include <vector>

#include "hub/gguf/gguf_file.h"
#include "hub/tokenizer_files.h"

namespace flatshard {

struct GgufTokenizerSource {
  std::string folder;           // model folder with a tokenizer; "": none
  int64_t vocab = 0;            // vocabulary of the model
  std::vector<int32_t> ends{};  // tokens that end a text
  std::string chat_template{};  // "": none
  std::string pattern{};        // llama.cpp's name of the pattern; "": found from the tokenizer's pattern
};

// Writes the keys of a tokenizer. Returns notes for the user. An Error names a feature that llama.cpp lacks.
std::vector<std::string> put_gguf_tokenizer(GgufWriter& out, const GgufTokenizerSource& source);

// The same tokenizer as files of a model folder: tokenizer.json, tokenizer_config.json and
// generation_config.json. Returns no files if the GGUF file has no tokenizer.
TokenizerFiles tokenizer_files_of(const GgufFile& file);

// The folder with the tokenizer of a published model: the model's own folder, or, for a GGUF file, a
// temporary one that exists until this process ends.
std::string tokenizer_folder_of(const std::string& model);

}  // namespace flatshard
