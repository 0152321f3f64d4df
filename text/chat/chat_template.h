#pragma once
// Chat templates: programs in Jinja that turn a conversation into the text that a model was trained on. A
// rendering records which of its bytes are data, so that no message can inject a special token, and which
// bytes the model generates.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.h"
#include "text/jinja/jinja_runtime.h"

namespace flatshard {

// The built-in chat templates, by name: the files of text/chat/templates/.
const std::map<std::string, const char*>& builtin_templates();

using SpecialTokens = std::map<std::string, std::string>;  // bos_token, eos_token, ... -> text

// A range of bytes of a rendering.
struct TextSpan {
  size_t begin = 0, end = 0;
  int32_t message = kOtherData;  // the message that the bytes come from
};

struct Rendering {
  std::string text{};
  std::vector<TextSpan> data{};       // text that does not come from the template, in ascending order
  std::vector<TextSpan> generated{};  // text inside {% generation %}
  std::vector<TextSpan> images{};     // texts of images, once image_text.h has inserted them
};

class ChatTemplate {
 public:
  struct Options {
    bool add_generation_prompt = false;
    JinjaSettings settings = {};
  };

  // An Error begins with name:line, here and in render().
  ChatTemplate(std::string_view source, const std::string& name, SpecialTokens tokens);
  // Returns a built-in template. An Error for an unknown name lists the built-in ones.
  static ChatTemplate named(const std::string& name, SpecialTokens tokens);
  // Reads the template and the special tokens of a folder of Hugging Face transformers: chat_template.jinja,
  // or the member chat_template of tokenizer_config.json. Throws an Error if it has neither.
  static ChatTemplate from_folder(const std::string& folder);

  // Returns the built-in template of this name, or reads the file, or for "" the folder's own template. The
  // special tokens are always the folder's.
  static ChatTemplate chosen(const std::string& name_or_file, const std::string& folder);

  Rendering render(const Conversation& conversation, const Options& options) const;
  const SpecialTokens& tokens() const { return tokens_; }
  const std::string& source() const { return default_.source; }
  // Whether renderings may depend on `settings.date`.
  bool prints_date() const;
  // A hash, in hexadecimal digits, of everything that renderings depend on besides conversation and options.
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
