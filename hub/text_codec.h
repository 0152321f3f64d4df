#pragma once
// How text becomes tokens and back for a model: by the tokenizer of its folder. Without one, with a
// vocabulary of 256 a token is a byte; otherwise text is token numbers separated by spaces. Conversations
// need a tokenizer and a chat template.

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
  // Reads the tokenizer of a model with this vocabulary. `chat_template` is as in ChatTemplate::chosen(),
  // and `date` what it prints (template_date.h), or "" for today's.
  TextCodec(const ModelSource& source, int64_t vocab, const std::string& chat_template = "",
            const std::string& date = "");
  // That of a folder, or "" for none. `model` is a folder that may name the tokens that end a text, or "".
  TextCodec(const std::string& tokenizer, const std::string& model, int64_t vocab,
            const std::string& chat_template, const std::string& date);

  TextCodec(const TextCodec&) = delete;
  TextCodec& operator=(const TextCodec&) = delete;

  bool has_tokenizer() const { return tokenizer_ != nullptr; }
  bool has_chat_template() const { return template_.has_value(); }
  const std::string& folder() const { return folder_; }  // of the tokenizer
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate& chat_template() const { return *template_; }
  // Tokens that end a text: eos_token_id of generation_config.json, else of config.json, and the tokenizer's
  // EOS. None without a tokenizer.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  // How the model reads images; nothing if it reads none.
  const std::optional<ImageInput>& image_input() const { return image_input_; }

  // With the tokens that the tokenizer adds to every text.
  std::vector<int32_t> encode(const std::string& text) const;
  // A conversation, up to where the model answers; the sizes of its images must be known.
  std::vector<int32_t> encode(const Conversation& conversation) const;
  // Without special tokens.
  std::string decode(std::span<const int32_t> tokens) const;

  // Decodes tokens as they arrive; the texts together are those of decode().
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
  std::string text_of(int32_t token) const;  // without a tokenizer

  std::string folder_;
  int64_t vocab_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  std::optional<ChatEncoder> chats_;  // of both
  std::vector<int32_t> end_tokens_;
  std::optional<ImageInput> image_input_;
};

}  // namespace flatshard
