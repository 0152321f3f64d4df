#include "text/chat/chat_template.h"

#include <filesystem>

#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/sha256.h"
#include "runtime/whole_file.h"
#include "text/jinja/jinja_parser.h"

namespace flatshard {
namespace {

using nlohmann::json;

constexpr int64_t kMostBytes = int64_t{64} << 20;  // largest file of a tokenizer's folder
constexpr int64_t kMostTemplateBytes = int64_t{1} << 20;
constexpr char kConfig[] = "/tokenizer_config.json";

json read_json(const std::string& path) {
  if (!std::filesystem::exists(path)) return json::object();
  const std::string text = read_whole_file(path, kMostBytes);
  json parsed = checked_json<json>(text, path);
  check(parsed.is_object(), path, ": must be an object");
  return parsed;
}

std::string names_of_builtin_templates() {
  std::string names;
  for (const auto& [name, source] : builtin_templates()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// The member named `name` of a list of templates; null if there is none.
const std::string* find_template(const json& list, const char* name, const std::string& path) {
  for (const json& item : list) {
    const bool is_template = item.is_object() && item.contains("name") && item.contains("template") &&
                             item["name"].is_string() && item["template"].is_string();
    check(is_template, path, ": chat_template must be a string or a list of {name, template}");
    if (item["name"] == name) return &item["template"].get_ref<const std::string&>();
  }
  return nullptr;
}

}  // namespace

ChatTemplate::Program ChatTemplate::program(std::string_view source, const std::string& name) {
  return {name, std::string(source), parse_jinja(source, name)};
}

ChatTemplate::ChatTemplate(std::string_view source, const std::string& name, SpecialTokens tokens)
    : default_(program(source, name)), tokens_(std::move(tokens)) {}

ChatTemplate ChatTemplate::named(const std::string& name, SpecialTokens tokens) {
  const auto found = builtin_templates().find(name);
  check(found != builtin_templates().end(), "there is no chat template \"", name, "\", must be one of ",
        names_of_builtin_templates());
  return ChatTemplate(found->second, "chat template " + name, std::move(tokens));
}

ChatTemplate ChatTemplate::from_folder(const std::string& folder) {
  SpecialTokens tokens = read_special_tokens(folder);
  if (const std::string path = folder + "/chat_template.jinja"; std::filesystem::exists(path))
    return ChatTemplate(read_whole_file(path, kMostBytes), path, std::move(tokens));
  const std::string path = folder + kConfig;
  const json config = read_json(path);
  check(config.contains("chat_template") && !config["chat_template"].is_null(), folder,
        " has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json); choose one "
        "that is "
        "built in: ",
        names_of_builtin_templates());
  const json& given = config["chat_template"];
  const std::string name = path + " (chat_template)";
  if (given.is_string()) return ChatTemplate(given.get_ref<const std::string&>(), name, std::move(tokens));
  check(given.is_array(), path, ": chat_template must be a string or a list of {name, template}");
  const std::string* source = find_template(given, "default", path);
  check(source != nullptr, path, ": chat_template has no template named default");
  ChatTemplate made(*source, name, std::move(tokens));
  if (const std::string* tool_use = find_template(given, "tool_use", path))
    made.tool_use_ = program(*tool_use, path + " (chat_template tool_use)");
  return made;
}

ChatTemplate ChatTemplate::chosen(const std::string& name, const std::string& folder) {
  if (name.empty()) return from_folder(folder);
  SpecialTokens tokens = read_special_tokens(folder);
  if (!std::filesystem::is_regular_file(name)) return named(name, std::move(tokens));
  return ChatTemplate(read_whole_file(name, kMostTemplateBytes), name, std::move(tokens));
}

Rendering ChatTemplate::render(const Conversation& conversation, const Options& options) const {
  std::map<std::string, JinjaValue> variables = conversation.variables;
  for (const auto& [name, text] : tokens_) variables.emplace(name, SourcedText(text));
  variables["messages"] = JinjaValue::list(conversation.messages);
  variables["add_generation_prompt"] = options.add_generation_prompt;
  variables.emplace("tools", JinjaValue());
  variables.emplace("documents", JinjaValue());
  const bool uses_tools = tool_use_.body && !variables["tools"].is(JinjaKind::none);
  const Program& program = uses_tools ? tool_use_ : default_;
  const SourcedText text = run_jinja(*program.body, program.name, variables, options.settings);

  Rendering rendering{.text = text.bytes(), .data = {}, .generated = {}};
  size_t begin = 0;
  for (const TextRun& run : text.runs()) {
    if (run.source != kFromTemplate) {
      std::vector<TextSpan>& data = rendering.data;
      const bool continues = !data.empty() && data.back().end == begin && data.back().message == run.source;
      if (!continues) data.push_back({begin, begin, run.source});
      data.back().end = run.end;
    }
    if (run.generated) {
      std::vector<TextSpan>& generated = rendering.generated;
      if (generated.empty() || generated.back().end != begin) generated.push_back({begin, begin, kOtherData});
      generated.back().end = run.end;
    }
    begin = run.end;
  }
  return rendering;
}

bool ChatTemplate::prints_date() const {
  constexpr const char* kPrints = "strftime_now";
  return default_.source.find(kPrints) != std::string::npos ||
         tool_use_.source.find(kPrints) != std::string::npos;
}

std::string ChatTemplate::identity() const {
  Sha256 hash;
  const auto add = [&](const std::string& text) {
    const std::string length = str(text.size(), ' ');
    hash.add(length.data(), length.size());
    hash.add(text.data(), text.size());
  };
  add(default_.source);
  add(tool_use_.source);
  for (const auto& [name, text] : tokens_) {
    add(name);
    add(text);
  }
  return hash.hex();
}

SpecialTokens read_special_tokens(const std::string& folder) {
  SpecialTokens tokens;
  for (const std::string& path : {folder + "/special_tokens_map.json", folder + kConfig}) {
    const json config = read_json(path);
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      const auto found = config.find(name);
      if (found == config.end()) continue;
      const json& content = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
      if (content.is_string()) tokens[name] = content;
    }
  }
  return tokens;
}

}  // namespace flatshard
