#pragma once
// Conversations as samples for training: token ids, and a mask of the trained tokens. The model is trained on
// the answers, including the token that ends a turn.
//
// The mask comes from the {% generation %} blocks of the template if it has them. Otherwise each turn is
// found in the rendering (turn_finder.h). If that fails, the tokens of the conversation are compared with the
// tokens of its beginnings, after a check that they begin it. No turn changes the mask of another turn.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/chat/train_on.h"
#include "text/images/image_input.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard {

struct ChatSample {
  std::vector<int32_t> ids;
  std::vector<uint8_t> mask;          // 1: the token is trained
  std::vector<ImageExtent> images{};  // never trained

  int64_t trained() const;  // number of trained tokens

  // Reasons for a warning.
  bool double_bos = false;        // template and tokenizer both begin with BOS; one was kept
  bool rewrites_history = false;  // the template renders earlier turns differently once later ones follow; if
                                  // there are many turns, only a few are compared
  bool untrained_end = false;     // a turn is trained without the special token that ends it
  bool split_prompt = false;  // the prompt's tokens do not begin the record's tokens, which are trained from
                              // the first difference on
};

class ChatEncoder {
 public:
  struct Options {
    TrainOn train_on = TrainOn::assistant;
    JinjaSettings settings = {};
    std::optional<ImageInput> images = {};  // rules for reading images; without them, images are refused
  };

  // Tokenizer and template must outlive the encoder.
  ChatEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template, Options options);

  // The sizes of images must be known. An Error, for example about roles out of order, begins with `where`,
  // which names the record.
  ChatSample sample(const ChatRecord& record, const std::string& where) const;
  // The tokens after which the model answers.
  std::vector<int32_t> prompt(const Conversation& conversation) const;

 private:
  struct Tokens {
    std::vector<int32_t> ids;
    std::vector<uint32_t> begins;  // the byte of the rendering where each token begins
    bool has_bos = false;          // the first id is a BOS that the tokenizer adds
    bool double_bos = false;
    std::vector<ImageExtent> images;
  };
  Tokens tokens(const Rendering& rendering, const std::vector<ShownImage>& images) const;
  Rendering render(const Conversation& conversation, bool add_generation_prompt) const;
  Rendering render_text(const std::string& text, const Conversation& conversation) const;
  std::vector<ImageExtent> extents(const Rendering& rendering, const Tokens& tokens,
                                   const std::vector<ShownImage>& images) const;
  ChatSample encoded(const ChatRecord& record) const;
  void train_completion(const ChatRecord& record, ChatSample& sample) const;
  void train_turns(const Conversation& conversation, const Rendering& rendering, const Tokens& whole,
                   ChatSample& sample) const;
  std::vector<TextSpan> generated_text(const Rendering& rendering, std::vector<size_t>& turns) const;
  void mask_by_prefixes(const Conversation& conversation, const Rendering& rendering,
                        const std::vector<size_t>& turns, ChatSample& sample) const;
  bool has_untrained_end(const ChatSample& sample) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  Options options_;
  bool adds_bos_;             // the tokenizer begins every text with BOS
  bool needs_parts_ = false;  // the template shows no content that is a text, only lists of parts
};

}  // namespace flatshard
