#pragma once
// Converts text to the tokens of a model, and tokens to text, with the tokenizer of its folder. Without a
// tokenizer, a token is a byte if the vocabulary has size 256; otherwise text is token numbers separated by
// spaces. Conversations need a tokenizer and a chat template.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/adapted_model.h"
#include "text/chat/chat_sample.h"
#include "text/chat/chat_template.h"
#include "text/images/image_input.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard {

class TextCodec {
 public:
  // Reads the tokenizer of a model with this vocabulary. `chat_template` is as in ChatTemplate::chosen().
  // Templates print `date` (template_date.h); "" means today.
  TextCodec(const ModelSource& source, int64_t vocab, const std::string& chat_template = "",
            const std::string& date = "");
  // Reads the tokenizer of a folder; "" means none. `model` is a folder that may name the tokens that end a
  // text, or "".
  TextCodec(const std::string& tokenizer, const std::string& model, int64_t vocab,
            const std::string& chat_template, const std::string& date);

  TextCodec(const TextCodec&) = delete;
  TextCodec& operator=(const TextCodec&) = delete;

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_chat_template() const { return template_.has_value(); }
  const std::string& folder() const { return folder_; }  // the folder of the tokenizer
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate& chat_template() const { return *template_; }
  // The tokens that end a text: eos_token_id of generation_config.json, or else of config.json, and the
  // tokenizer's EOS. Empty without a tokenizer.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  // The model's rules for reading images; nothing if it reads none.
  const std::optional<ImageInput>& image_input() const { return image_input_; }

  // Includes the tokens that the tokenizer adds to every text.
  std::vector<int32_t> encode(const std::string& text) const;
  // Encodes a conversation up to the model's next answer. The sizes of its images must be known.
  std::vector<int32_t> encode(const Conversation& conversation) const;
  // Omits special tokens.
  std::string decode(std::span<const int32_t> tokens) const;

  // Decodes tokens as they arrive. The texts concatenated equal decode().
  class Stream {
   public:
    explicit Stream(const TextCodec& codec);
    std::string take(int32_t token);
    std::string rest();

   private:
    const TextCodec& codec_;
    std::optional<StreamDecoder> decoder_;
  };

 private:
  std::string text_of(int32_t token) const;  // used without a tokenizer

  std::string folder_;
  int64_t vocab_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatEncoder> chats_;  // uses tokenizer_ and template_
  std::vector<int32_t> end_tokens_;
  std::optional<ImageInput> image_input_;
};

}  // namespace flatshard
