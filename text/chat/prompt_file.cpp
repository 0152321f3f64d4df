#include "text/chat/prompt_file.h"

#include <algorithm>
#include <filesystem>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/whole_file.h"
#include "text/input/null_members.h"

namespace flatshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostBytes = int64_t{1} << 30;

// The text of a message; "" if it has none, for example if it only calls tools.
std::string text_of(const JinjaValue& message) {
  std::string text;
  for (const std::string& part : texts_of_content(message)) text += part;
  return text;
}

void read_conversation(PromptRecord& record, const std::string& folder) {
  Conversation conversation = parse_chat_record(record.json, record.where, folder).conversation;
  const size_t count = conversation.messages.size();
  const bool answered = conversation.role(count - 1) == "assistant";
  check(!answered || count > 1, record.where, ": the only message is the assistant's, so there is no prompt");
  if (answered) record.reference = text_of(conversation.messages.back());
  record.conversation = answered ? conversation.first(count - 1) : conversation;
  for (size_t i = 0; i < record.conversation->messages.size(); ++i)
    if (conversation.role(i) == "user") record.question = text_of(conversation.messages[i]);
}

void read_text(const Json& json, PromptRecord& record) {
  const auto prompt = json.find("prompt");
  check(prompt != json.end() && prompt->is_string(), record.where,
        ": has neither \"messages\", \"conversations\" or \"instruction\" nor a string \"prompt\"");
  record.prompt = record.question = prompt->get<std::string>();
  const auto completion = json.find("completion");
  if (completion == json.end()) return;
  check(completion->is_string(), record.where, ": \"completion\" is of type ", completion->type_name(),
        ", must be a string");
  record.reference = completion->get<std::string>();
}

PromptRecord record_of(const std::string& line, const std::string& where, const std::string& folder) {
  Json json = checked_json<Json>(line, where);
  check(json.is_object(), where, ": must be an object");
  drop_null_members(json);
  PromptRecord record{.where = where, .json = line};
  if (json.contains("messages") || json.contains("conversations") ||
      (json.contains("instruction") && !json.contains("prompt")))
    read_conversation(record, folder);
  else
    read_text(json, record);
  for (const char* name : {"data_id", "item_name", "image_name"})
    if (const auto found = json.find(name); found != json.end())
      record.labels[name] = found->is_string() ? found->get<std::string>() : found->dump();
  return record;
}

}  // namespace

std::vector<PromptRecord> read_prompt_file(const std::string& path) {
  const std::string text = read_whole_file(path, kMostBytes);
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::vector<PromptRecord> records;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") != line.npos)
      records.push_back(record_of(line, str(path, ':', number), folder));
  }
  check(!records.empty(), path, ": has no records");
  return records;
}

std::string with_answer(const PromptRecord& record, const std::string& answer) {
  Json json = parse_json<Json>(record.json);
  json["answer"] = answer;
  return json_text(json, kOneLine, InvalidUtf8::replaced);
}

}  // namespace flatshard
