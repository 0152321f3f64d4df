#include "text/chat/conversation.h"

#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

using nlohmann::ordered_json;

int32_t source_of_role(const std::string& role, int32_t message) {
  static const std::set<std::string> known{"system",    "user",    "assistant",   "tool",  "function",
                                           "developer", "ipython", "environment", "model", "documents"};
  return known.contains(role) ? kFromTemplate : message;
}

JinjaValue value_of(const ordered_json& json, int32_t source) {
  switch (json.type()) {
    case ordered_json::value_t::null:
      return {};
    case ordered_json::value_t::boolean:
      return json.get<bool>();
    case ordered_json::value_t::number_unsigned:
      check(json.get<uint64_t>() <= std::numeric_limits<int64_t>::max(), "the number ", json.dump(),
            " does not fit in 64 bits");
      [[fallthrough]];
    case ordered_json::value_t::number_integer:
      return json.get<int64_t>();
    case ordered_json::value_t::number_float:
      return json.get<double>();
    case ordered_json::value_t::array: {
      JinjaValue::Items items;
      for (const ordered_json& item : json) items.push_back(value_of(item, source));
      return JinjaValue::list(std::move(items));
    }
    case ordered_json::value_t::object: {
      JinjaValue::Pairs pairs;
      for (const auto& [key, member] : json.items())
        pairs.emplace_back(SourcedText(key, source), value_of(member, source));
      return JinjaValue::dict(pairs);
    }
    default:
      return SourcedText(json.get_ref<const std::string&>(), source);
  }
}

// Hugging Face transformers gives templates the reasoning of a message under the names that they read.
void name_reasoning(ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    const ordered_json reasoning = *found;
    ordered_json named{{"thinking", reasoning}};
    named.update(message);
    named["reasoning_content"] = reasoning;
    message = std::move(named);
    return;
  }
}

void add_message(Conversation& conversation, ordered_json message) {
  const size_t number = conversation.messages.size() + 1;
  check(message.is_object(), "message ", number, " is not an object");
  const auto role = message.find("role");
  check(role != message.end() && role->is_string(), "message ", number, " has no role");
  name_reasoning(message);
  const auto source = static_cast<int32_t>(conversation.messages.size());
  JinjaValue::Pairs pairs;
  for (const auto& [key, member] : message.items())
    pairs.emplace_back(SourcedText(key, source),
                       key == "role" ? SourcedText(member.get<std::string>(), source_of_role(member, source))
                                     : value_of(member, source));
  conversation.messages.push_back(JinjaValue::dict(pairs));
}

void add_messages(Conversation& conversation, const ordered_json& messages, const char* field) {
  check(messages.is_array(), '"', field, "\" must be a list of messages");
  check(!messages.empty(), '"', field, "\" has no messages");
  for (const ordered_json& message : messages) add_message(conversation, message);
}

// {"from": "human", "value": "..."} as {"role": "user", "content": "..."}
ordered_json renamed(ordered_json turn) {
  if (!turn.is_object() || !turn.contains("from") || !turn.contains("value")) return turn;
  const ordered_json& from = turn["from"];
  return {{"role", from == "human" ? ordered_json("user")
                   : from == "gpt" ? ordered_json("assistant")
                                   : from},
          {"content", turn["value"]}};
}

ChatRecord record_of(const ordered_json& json) {
  check(json.is_object(), "a record must be an object");
  ChatRecord record;
  for (const char* name : {"tools", "documents"})
    if (json.contains(name)) record.conversation.variables[name] = value_of(json[name], kOtherData);
  if (json.contains("chat_template_kwargs")) {
    check(json["chat_template_kwargs"].is_object(), "\"chat_template_kwargs\" must be an object");
    for (const auto& [name, value] : json["chat_template_kwargs"].items())
      record.conversation.variables[name] = value_of(value, kOtherData);
  }
  if (json.contains("messages")) {
    add_messages(record.conversation, json["messages"], "messages");
  } else if (json.contains("conversations")) {
    check(json["conversations"].is_array(), "\"conversations\" must be a list of messages");
    ordered_json turns = ordered_json::array();
    for (const ordered_json& turn : json["conversations"]) turns.push_back(renamed(turn));
    add_messages(record.conversation, turns, "conversations");
  } else {
    check(json.contains("prompt") && json.contains("completion"),
          "a record must have \"messages\", \"conversations\", or \"prompt\" and \"completion\"");
    const ordered_json &prompt = json["prompt"], &completion = json["completion"];
    record.has_prompt = true;
    if (prompt.is_string() && completion.is_string()) {
      record.prompt = prompt;
      record.completion = completion;
    } else {
      add_messages(record.conversation, prompt, "prompt");
      record.prompt_messages = record.conversation.messages.size();
      add_messages(record.conversation, completion, "completion");
    }
  }
  return record;
}

}  // namespace

void Conversation::add(std::string_view role_name, std::string_view content) {
  check(valid_utf8_prefix(content) == content.size(), "the message is not UTF-8 at byte ",
        valid_utf8_prefix(content));
  const auto source = static_cast<int32_t>(messages.size());
  const std::string role(role_name);
  messages.push_back(JinjaValue::dict({{SourcedText("role"), SourcedText(role, source_of_role(role, source))},
                                       {SourcedText("content"), SourcedText(content, source)}}));
}

std::string Conversation::role(size_t message) const {
  const JinjaValue* role = messages[message].dict().find("role");
  return role == nullptr ? "" : role->bytes();
}

Conversation Conversation::first(size_t count) const {
  Conversation part = *this;
  part.messages.resize(count);
  return part;
}

ChatRecord parse_chat_record(std::string_view json, const std::string& where) {
  check_json(json, where);
  try {
    return record_of(ordered_json::parse(json.begin(), json.end()));
  } catch (const Error& error) {
    throw Error(where + ": " + error.what(), error.where);
  }
}

}  // namespace flatshard
