#pragma once
// Reads the files of a tokenizer: the tokenizer.json of Hugging Face's tokenizers with a byte-pair-encoding
// model, or GPT-2's vocab.json and merges.txt (encoder.json and vocab.bpe). An unsupported component
// that would change ids is an Error that names the file and the component. The members `truncation` and
// `padding` are ignored, as transformers does. The files are untrusted.

#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/words/added_tokens.h"
#include "text/words/normalizer.h"
#include "text/words/pre_tokenizer.h"

namespace flatshard {

struct TokenizerParts {
  Vocabulary vocabulary;  // vocabulary of the model
  Bpe::Merges merges;
  BpeOptions options;
  std::vector<AddedToken> added;
  int64_t vocab = 0;                               // one above the largest id
  std::vector<std::optional<std::string>> tokens;  // indexed by id
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<int32_t> prefix, suffix;  // tokens that the post-processor adds around a text
  std::vector<Decoder::Token> decoded;  // indexed by id
  Decoder::Rules decoding;
};

// Reads a tokenizer.json.
TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& path);

// The names of GPT-2's two files, the vocabulary and the merges.
inline constexpr std::pair<const char*, const char*> kGpt2Files[] = {{"vocab.json", "merges.txt"},
                                                                     {"encoder.json", "vocab.bpe"}};
// Reads GPT-2's two files.
TokenizerParts parse_gpt2_files(std::string_view vocabulary, const std::string& vocabulary_path,
                                std::string_view merges, const std::string& merges_path);

// The settings in tokenizer_config.json and special_tokens_map.json. Missing tokens are "", and missing flags
// have no value.
struct TokenNames {
  std::string bos, eos, pad;
  std::optional<bool> add_bos, add_eos;
};
// Adds the settings that `names` lacks.
void parse_token_names(std::string_view text, const std::string& path, TokenNames* names);

}  // namespace flatshard
