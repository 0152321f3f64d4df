#pragma once
// A published byte-pair-encoding tokenizer: text to token ids and back, exactly as Hugging Face's tokenizers
// does it. Const and thread-safe; results depend neither on the number of threads nor on earlier calls.

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/decoder.h"
#include "text/words/aligned_text.h"

namespace flatshard {

struct Encoding {
  std::vector<int32_t> ids;
  // The byte of the input at which each token begins, in ascending order; where normalization joined
  // characters, that of the first one. A token that the post-processor adds has its neighbor's.
  std::vector<uint32_t> begins;
};

class Tokenizer {
 public:
  // A folder of Hugging Face transformers with tokenizer.json, or vocab.json and merges.txt, or encoder.json
  // and vocab.bpe; or a file of the kind of tokenizer.json. tokenizer_config.json and special_tokens_map.json
  // next to it name the BOS, EOS and padding tokens; their add_bos_token and add_eos_token override the
  // post-processor. An Error names the file and what is wrong or not supported in it.
  explicit Tokenizer(const std::string& path);
  // The content of a tokenizer.json; errors call it `name`.
  static Tokenizer from_json(std::string_view json, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  int64_t vocab() const;  // one above the largest id

  // Each invalid sequence of bytes (utf8_front) is encoded as U+FFFD, as Python's errors="replace" reads it.
  // `add_special`: with the tokens that the post-processor adds, such as BOS. An Error if the text has 4 GiB
  // or more.
  Encoding encode(std::string_view text, bool add_special = true) const;
  // The same, except that special tokens are not recognized where they touch one of the ranges `plain`, which
  // are in ascending order: the text there is data.
  Encoding encode(std::string_view text, bool add_special, std::span<const TextRange> plain) const;

  // Invalid UTF-8 and ids without a token become U+FFFD. `skip_special`: without the special tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  std::string token_text(int32_t id) const;  // as in the vocabulary; an Error if the id has no token
  bool is_special(int32_t id) const;
  std::optional<int32_t> bos() const;  // named by the folder, and in the vocabulary
  std::optional<int32_t> eos() const;
  std::optional<int32_t> pad() const;
  // A hash of the files and settings that ids depend on, in hexadecimal digits.
  const std::string& identity() const;

 private:
  friend class StreamDecoder;
  struct Data;
  struct Scratch;
  class Lease;
  explicit Tokenizer(std::unique_ptr<Data> data);

  std::unique_ptr<Data> data_;
};

// Decodes tokens as they arrive. All texts together are those of decode(); none ends inside a character.
// The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string take(int32_t id);  // the text that is complete with this token
  std::string rest();            // what is incomplete at the end

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  Decoder::State state_;
};

}  // namespace flatshard
