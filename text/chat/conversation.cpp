#include "text/chat/conversation.h"

#include <limits>
#include <set>

#include "runtime/check.h"
#include "runtime/error_context.h"
#include "runtime/json.h"
#include "text/chat/image_parts.h"
#include "text/input/null_members.h"

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
      check(json.get<uint64_t>() <= std::numeric_limits<int64_t>::max(), "the number ", json_text(json),
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

// Names the reasoning of a message "thinking" and "reasoning_content", the names that templates read, as
// Hugging Face transformers does.
void name_reasoning(ordered_json& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end()) continue;
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

void append_messages(const ordered_json& list, const char* field, std::vector<ordered_json>& messages) {
  check(list.is_array(), '"', field, "\" must be a list of messages");
  check(!list.empty(), '"', field, "\" has no messages");
  messages.insert(messages.end(), list.begin(), list.end());
}

// Rewrites {"from": "human", "value": "..."} as {"role": "user", "content": "..."}.
ordered_json renamed(ordered_json turn) {
  if (!turn.is_object() || !turn.contains("from") || !turn.contains("value")) return turn;
  const ordered_json& from = turn["from"];
  return {{"role", from == "human" ? ordered_json("user")
                   : from == "gpt" ? ordered_json("assistant")
                                   : from},
          {"content", turn["value"]}};
}

// The text of a member of Alpaca's records; "" if it is missing or null.
std::string text_member(const ordered_json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return "";
  check(found->is_string(), '"', name, "\" is of type ", found->type_name(), ", must be a string");
  return *found;
}

std::vector<ordered_json> alpaca_messages(const ordered_json& json) {
  std::vector<ordered_json> messages;
  const auto add = [&](const char* role, std::string text) {
    messages.push_back({{"role", role}, {"content", std::move(text)}});
  };
  if (const std::string system = text_member(json, "system"); !system.empty()) add("system", system);
  if (const auto history = json.find("history"); history != json.end() && !history->is_null()) {
    check(history->is_array(), "\"history\" is of type ", history->type_name(), ", must be a list of turns");
    for (const ordered_json& turn : *history) {
      check(turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string(),
            "a turn of \"history\" must be a list of two texts, a question and its answer");
      add("user", turn[0]);
      add("assistant", turn[1]);
    }
  }
  const std::string instruction = text_member(json, "instruction"), input = text_member(json, "input");
  check(json.contains("output"), "has an \"instruction\", but no \"output\"");
  add("user", instruction + (instruction.empty() || input.empty() ? "" : "\n") + input);
  add("assistant", text_member(json, "output"));
  return messages;
}

// Reads the messages, or the two texts of a record without messages.
std::vector<ordered_json> read_messages(const ordered_json& json, ChatRecord& record) {
  std::vector<ordered_json> messages;
  if (json.contains("messages")) {
    append_messages(json["messages"], "messages", messages);
  } else if (json.contains("conversations")) {
    append_messages(json["conversations"], "conversations", messages);
    for (ordered_json& turn : messages) turn = renamed(turn);
  } else if (json.contains("instruction") && !json.contains("prompt")) {
    return alpaca_messages(json);
  } else {
    check(json.contains("prompt") && json.contains("completion"),
          "a record must have \"messages\", \"conversations\", \"prompt\" and \"completion\", or "
          "\"instruction\" and \"output\"");
    const ordered_json &prompt = json["prompt"], &completion = json["completion"];
    record.has_prompt = true;
    if (prompt.is_string() && completion.is_string()) {
      record.prompt = prompt;
      record.completion = completion;
    } else {
      append_messages(prompt, "prompt", messages);
      record.prompt_messages = messages.size();
      append_messages(completion, "completion", messages);
    }
  }
  for (ordered_json& message : messages) drop_null_members(message);
  return messages;
}

ChatRecord record_of(ordered_json json, const std::string& folder) {
  check(json.is_object(), "a record must be an object");
  drop_null_members(json);
  ChatRecord record;
  if (const auto tools = json.find("tools"); tools != json.end() && tools->is_string())
    *tools = checked_json<ordered_json>(tools->get<std::string>(), "\"tools\"");
  for (const char* name : {"tools", "documents"})
    if (json.contains(name)) record.conversation.variables[name] = value_of(json[name], kOtherData);
  if (json.contains("chat_template_kwargs")) {
    check(json["chat_template_kwargs"].is_object(), "\"chat_template_kwargs\" must be an object");
    for (const auto& [name, value] : json["chat_template_kwargs"].items())
      record.conversation.variables[name] = value_of(value, kOtherData);
  }
  std::vector<ordered_json> messages = read_messages(json, record);
  record.conversation.images = take_images(json, folder, messages);
  for (ordered_json& message : messages) add_message(record.conversation, std::move(message));
  return record;
}

JinjaValue text_part(const JinjaValue& text) {
  return JinjaValue::dict({{SourcedText("type"), SourcedText("text")}, {SourcedText("text"), text}});
}

JinjaValue image_part() { return JinjaValue::dict({{SourcedText("type"), SourcedText("image")}}); }

}  // namespace

void Conversation::add(std::string_view role_name, std::string_view content,
                       const std::vector<ImageSource>& shown) {
  check(valid_utf8_prefix(content) == content.size(), "the message is not UTF-8 at byte ",
        valid_utf8_prefix(content));
  const auto source = static_cast<int32_t>(messages.size());
  const std::string role(role_name);
  JinjaValue text = SourcedText(content, source);
  if (!shown.empty()) {
    JinjaValue::Items parts(shown.size(), image_part());
    parts.push_back(text_part(text));
    text = JinjaValue::list(std::move(parts));
    for (const ImageSource& image : shown) images.push_back({.message = messages.size(), .source = image});
  }
  messages.push_back(JinjaValue::dict({{SourcedText("role"), SourcedText(role, source_of_role(role, source))},
                                       {SourcedText("content"), std::move(text)}}));
}

std::string Conversation::role(size_t message) const {
  const JinjaValue* role = messages[message].dict().find("role");
  return role == nullptr ? "" : role->bytes();
}

Conversation Conversation::first(size_t count) const {
  Conversation part = *this;
  part.messages.resize(count);
  std::erase_if(part.images, [count](const ShownImage& image) { return image.message >= count; });
  return part;
}

std::vector<std::string> texts_of_content(const JinjaValue& message) {
  const JinjaValue* const content = message.dict().find("content");
  if (content == nullptr) return {};
  if (content->is(JinjaKind::text)) return {content->bytes()};
  std::vector<std::string> texts;
  if (content->is(JinjaKind::list))
    for (const JinjaValue& part : content->list().values)
      if (const JinjaValue* text = part.is(JinjaKind::dict) ? part.dict().find("text") : nullptr)
        if (text->is(JinjaKind::text)) texts.push_back(text->bytes());
  return texts;
}

Conversation with_parts(Conversation conversation) {
  for (JinjaValue& message : conversation.messages) {
    JinjaValue::Pairs pairs = message.dict().pairs;
    for (auto& [key, member] : pairs)
      if (key.is(JinjaKind::text) && key.bytes() == "content" && member.is(JinjaKind::text))
        member = JinjaValue::list({text_part(member)});
    message = JinjaValue::dict(pairs);
  }
  return conversation;
}

ChatRecord parse_chat_record(std::string_view json, const std::string& where, const std::string& folder) {
  ordered_json parsed = checked_json<ordered_json>(json, where);
  return with_place(where, [&] { return record_of(std::move(parsed), folder); });
}

}  // namespace flatshard
