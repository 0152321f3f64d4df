#pragma once
// Chat templates: programs in Jinja that turn a conversation into the text that a model was trained on. A
// rendering says which of its bytes are data, so that no message can inject a special token, and which the
// model generates.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.h"
#include "text/jinja/jinja_runtime.h"

namespace flatshard {

using SpecialTokens = std::map<std::string, std::string>;  // bos_token, eos_token, ... -> text

// Bytes of a rendering.
struct TextSpan {
  size_t begin = 0, end = 0;
  int32_t message = kOtherData;  // which message they are from
};

struct Rendering {
  std::string text{};
  std::vector<TextSpan> data{};       // what does not come from the template, in ascending order
  std::vector<TextSpan> generated{};  // inside {% generation %}
  std::vector<TextSpan> images{};     // the texts of images, if image_text.h has put them in
};

class ChatTemplate {
 public:
  struct Options {
    bool add_generation_prompt = false;
    JinjaSettings settings = {};
  };

  // An Error begins with name:line, here and in render().
  ChatTemplate(std::string_view source, const std::string& name, SpecialTokens tokens);
  // A template that is built in. An Error for an unknown name lists the built-in ones.
  static ChatTemplate named(const std::string& name, SpecialTokens tokens);
  // The template and the special tokens of a folder of Hugging Face transformers: chat_template.jinja, or the
  // member chat_template of tokenizer_config.json. An Error if it has neither.
  static ChatTemplate from_folder(const std::string& folder);

  // The built-in template of this name, or that of the file, or with "" the folder's own; in each case with
  // the special tokens of the folder.
  static ChatTemplate chosen(const std::string& name_or_file, const std::string& folder);

  Rendering render(const Conversation& conversation, const Options& options) const;
  const SpecialTokens& tokens() const { return tokens_; }
  const std::string& source() const { return default_.source; }
  // Whether renderings may depend on the date of the settings.
  bool prints_date() const;
  // A hash, in hexadecimal digits, of what renderings depend on besides conversation and options.
  std::string identity() const;

 private:
  struct Program {
    std::string name, source;
    std::shared_ptr<const JinjaNode> body;
  };
  static Program program(std::string_view source, const std::string& name);

  Program default_, tool_use_;  // tool_use_: for conversations with tools, if the folder has one
  SpecialTokens tokens_;
};

// bos_token, eos_token and so on, as tokenizer_config.json and special_tokens_map.json name them.
SpecialTokens read_special_tokens(const std::string& folder);

}  // namespace flatshard
