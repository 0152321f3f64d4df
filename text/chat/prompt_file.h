#pragma once
// Files of prompts: JSON lines, each an object with one of
//   "prompt": "text"                     and perhaps "completion": "text"
//   "messages", "conversations" or "instruction": as in text/chat/conversation.h; if the assistant wrote the
//                                        last message, it is the expected answer and not part of the prompt

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/conversation.h"

namespace flatshard {

struct PromptRecord {
  std::string where, json;  // "file:line", and the text of the line
  std::string prompt{};     // empty if there is a conversation
  std::optional<Conversation> conversation{};
  std::optional<std::string> reference{};       // the expected answer
  std::string question{};                       // the prompt, or the last message of the user
  std::map<std::string, std::string> labels{};  // data_id, item_name and image_name, if the record has them
};

// An Error names file and line. A file without records is an Error.
std::vector<PromptRecord> read_prompt_file(const std::string& path);

// The record as one line of JSON with its member "answer" set to `answer`.
std::string with_answer(const PromptRecord& record, const std::string& answer);

}  // namespace flatshard
