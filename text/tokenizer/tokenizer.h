#pragma once
// A published byte-pair-encoding tokenizer: converts text to token ids and back, exactly like Hugging Face's
// tokenizers. Const and thread-safe; results depend neither on the number of threads nor on earlier calls.

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
  // The first byte of each token in the input, in ascending order. Where normalization joined characters, it
  // is the byte of the first one. A token added by the post-processor has its neighbor's byte.
  std::vector<uint32_t> begins;
};

class Tokenizer {
 public:
  // Reads a folder of Hugging Face transformers with tokenizer.json, or vocab.json and merges.txt, or
  // encoder.json and vocab.bpe; or a file like tokenizer.json. tokenizer_config.json and
  // special_tokens_map.json next to it name the BOS, EOS and padding tokens; their add_bos_token and
  // add_eos_token override the post-processor. An Error names the file and the mistake or unsupported feature
  // in it.
  explicit Tokenizer(const std::string& path);
  // Reads the content of a tokenizer.json; Errors call it `name`.
  static Tokenizer from_json(std::string_view json, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;

  int64_t vocab() const;  // one above the largest id

  // Each invalid sequence of bytes (utf8_front) is encoded as U+FFFD, as in Python's errors="replace". With
  // `add_special`, includes the tokens that the post-processor adds, such as BOS. Special tokens are not
  // recognized if they touch one of the ranges `plain`, whose text is data; the ranges must be in ascending
  // order. Throws an Error if the text has 4 GiB or more.
  Encoding encode(std::string_view text, bool add_special = true,
                  std::span<const TextRange> plain = {}) const;

  // Invalid UTF-8 and ids without a token become U+FFFD. `skip_special` omits special tokens.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  std::string token_text(int32_t id) const;  // text in the vocabulary; an Error if the id has no token
  bool is_special(int32_t id) const;
  std::optional<int32_t> bos() const;  // nothing unless the folder names it and it is in the vocabulary
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

// Decodes tokens as they arrive. The texts concatenated equal decode(); no text ends inside a character.
// The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}
  std::string take(int32_t id);  // returns the text that this token completes
  std::string rest();            // returns the incomplete text at the end

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_;
  Decoder::State state_;
};

}  // namespace flatshard
