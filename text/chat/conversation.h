#pragma once
// Conversations as chat templates read them: messages, which are dictionaries with a role and a content, and
// other members of a record, such as tools. All strings of message i carry i as their source, so that
// message text stays data however the template processes it. Well-known roles are the exception: they are
// part of special tokens such as <|user|>.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/images/image_source.h"
#include "text/jinja/jinja_value.h"

namespace flatshard {

constexpr int32_t kOtherData = -2;  // the source of data that belongs to no message

// An image that a message shows.
struct ShownImage {
  size_t message = 0;
  ImageSource source;
  ImageSize size{};  // facts_of(source).size, once it is known
};

struct Conversation {
  std::vector<JinjaValue> messages;             // dictionaries
  std::map<std::string, JinjaValue> variables;  // tools, documents, enable_thinking, ...
  std::vector<ShownImage> images{};             // images in the order of the messages

  // Adds a message whose text follows the images.
  void add(std::string_view role, std::string_view content, const std::vector<ImageSource>& shown = {});
  std::string role(size_t message) const;  // "" if it has none
  Conversation first(size_t messages) const;
};

// One line of a file of conversations, in any of these forms:
//   {"messages": [{"role": "user", "content": "..."}, ...]}
//   {"conversations": [{"from": "human", "value": "..."}, ...]}
//   {"prompt": [messages], "completion": [messages]}
//   {"prompt": "...", "completion": "..."}
//   {"instruction": "...", "input": "...", "output": "..."}
// with `tools`, `documents` and `chat_template_kwargs` in all but the fourth. image_parts.h says how messages
// show images. The last form is Alpaca's, read as LLaMA-Factory reads it: the user says the instruction, a
// line break and the input, unless that is missing or empty; the assistant, the output. `system` is a message
// before them, and `history` a list of earlier turns [["question", "answer"], ...].
struct ChatRecord {
  Conversation conversation;
  bool has_prompt = false;         // third or fourth form: the prompt is not trained
  size_t prompt_messages = 0;      // number of messages in the prompt
  std::string prompt, completion;  // fourth form, which has no messages
};

// An Error begins with `where`, which names the file and the line. Paths of images are relative to `folder`.
ChatRecord parse_chat_record(std::string_view json, const std::string& where, const std::string& folder = "");

// The texts of a message's content, which is a text or a list of parts.
std::vector<std::string> texts_of_content(const JinjaValue& message);

// Turns each content that is a text into a list of one part, which some templates require.
Conversation with_parts(Conversation conversation);

}  // namespace flatshard
