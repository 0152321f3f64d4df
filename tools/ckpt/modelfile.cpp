#include "tools/ckpt/modelfile.h"

#include <map>

#include "runtime/check.h"

namespace flatshard {
namespace {

struct Turn {
  std::string role, content;
};
using Turns = std::vector<Turn>;

// The text around the content of a message.
struct Around {
  std::string before, after;
};

std::string render(const ChatTemplate& chat_template, const Turns& turns) {
  Conversation conversation;
  for (const Turn& turn : turns) conversation.add(turn.role, turn.content);
  std::string text = chat_template.render(conversation, {.add_generation_prompt = true}).text;
  const auto bos = chat_template.tokens().find("bos_token");
  if (bos != chat_template.tokens().end() && !bos->second.empty() && text.starts_with(bos->second))
    text.erase(0, bos->second.size());
  return text;
}

// The parts of a template that writes all messages of a role in the same way.
class Parts {
 public:
  // Finds the text around four contents that occur nowhere else: a user's message, the answer, the user's
  // next message, and a system message.
  explicit Parts(const ChatTemplate& chat_template) {
    const std::string with_system = render(chat_template, {{"system", kSystem}, {"user", kUser}});
    const std::string alone = render(chat_template, {{"user", kUser}});
    const std::string turns =
        render(chat_template, {{"user", kUser}, {"assistant", kAnswer}, {"user", kNext}});
    // The first user's message ends where the longer conversation starts to differ from the shorter one.
    user_.before = before(alone, kUser);
    const std::string rest = after(alone, kUser), between = middle(turns, kUser, kAnswer);
    answer_.after = "";
    const std::string next = middle(turns, kAnswer, kNext);
    // `between` is the end of the user's message and the beginning of the answer, which begins every answer.
    check(rest == between, "the answer begins otherwise than a new one");
    check(next.ends_with(user_.before) && after(turns, kNext) == rest,
          "later messages are written otherwise");
    answer_.after = next.substr(0, next.size() - user_.before.size());
    answer_.before = rest;
    system_.before = before(with_system, kSystem);
    const std::string to_user = middle(with_system, kSystem, kUser);
    check(to_user.ends_with(user_.before) && after(with_system, kUser) == rest,
          "a system message changes what follows");
    system_.after = to_user.substr(0, to_user.size() - user_.before.size());
  }

  std::string render_as_parts(const Turns& turns) const {
    std::string text;
    for (const Turn& turn : turns) {
      const Around& around = turn.role == "system" ? system_ : turn.role == "user" ? user_ : answer_;
      text += (turn.role == "assistant" ? "" : around.before) + turn.content + around.after;
      if (turn.role == "user") text += answer_.before;
    }
    return text;
  }

  std::string in_go() const {
    return str("{{- range .Messages }}{{- if eq .Role \"system\" }}", literal(system_.before),
               "{{ .Content }}", literal(system_.after), "{{- else if eq .Role \"user\" }}",
               literal(user_.before), "{{ .Content }}", literal(answer_.before),
               "{{- else if eq .Role \"assistant\" }}{{ .Content }}", literal(answer_.after),
               "{{- end }}{{- end }}");
  }

 private:
  static constexpr char kSystem[] = "the-system-says", kUser[] = "the-user-asks",
                        kAnswer[] = "the-model-answers", kNext[] = "the-user-goes-on";

  // Quotes text for a Go template: as a string constant, which keeps white space.
  static std::string literal(const std::string& text) {
    if (text.empty()) return "";
    std::string quoted;
    for (const char c : text) {
      if (c == '\n')
        quoted += "\\n";
      else if (c == '"' || c == '\\')
        quoted += str('\\', c);
      else
        quoted += c;
    }
    return "{{ \"" + quoted + "\" }}";
  }

  static std::string before(const std::string& text, const std::string& mark) {
    const size_t at = text.find(mark);
    check(at != text.npos, "a message is missing");
    return text.substr(0, at);
  }
  static std::string after(const std::string& text, const std::string& mark) {
    const size_t at = text.find(mark);
    check(at != text.npos && text.find(mark, at + 1) == text.npos, "a message is missing or written twice");
    return text.substr(at + mark.size());
  }
  static std::string middle(const std::string& text, const std::string& first, const std::string& second) {
    return before(after(text, first), second);
  }

  Around system_, user_, answer_;
};

}  // namespace

std::optional<std::string> ollama_template(const ChatTemplate& chat_template) {
  try {
    const Parts parts(chat_template);
    const Turns system{{"system", "Be brief."}}, one{{"user", "Hello there"}},
        more{{"user", "One"},
             {"assistant", "Two"},
             {"user", "Three"},
             {"assistant", "Four"},
             {"user", "Five"}};
    for (const Turns& turns : {one, more}) {
      Turns both = system;
      both.insert(both.end(), turns.begin(), turns.end());
      for (const Turns& shown : {turns, both})
        if (render(chat_template, shown) != parts.render_as_parts(shown)) return {};
    }
    return parts.in_go();
  } catch (const Error&) {  // the template has another form, or refuses a role
    return {};
  }
}

std::string Modelfile::text() const {
  std::string text;
  if (!adapter.empty())
    text += str(
        "# The model of the adapter's base, as GGUF or by its name in Ollama.\nFROM ./base.gguf\nADAPTER ./",
        adapter, '\n');
  else
    text += str("FROM ./", model, '\n');
  if (has_template) text += str("TEMPLATE \"\"\"", go_template, "\"\"\"\n");
  for (const std::string& stop : stops) text += str("PARAMETER stop \"", stop, "\"\n");
  if (context > 0) text += str("PARAMETER num_ctx ", context, '\n');
  return text;
}

Modelfile modelfile_of(const TextCodec& codec, const ModelConfig& config, const std::string& model) {
  // Ollama's memory grows with the context; users can ask for longer contexts.
  constexpr int64_t kMostContext = 8192;
  Modelfile file{.model = model, .context = std::min(config.max_positions, kMostContext)};
  if (!codec.has_tokenizer()) return file;
  for (const int32_t end : codec.end_tokens()) {
    const std::string text = codec.tokenizer().token_text(end);
    if (text.find('"') == text.npos &&
        std::find(file.stops.begin(), file.stops.end(), text) == file.stops.end())
      file.stops.push_back(text);
  }
  if (!codec.has_chat_template()) return file;
  file.chat_template = true;
  if (const std::optional<std::string> made = ollama_template(codec.chat_template())) {
    file.go_template = *made;
    file.has_template = true;
  }
  return file;
}

}  // namespace flatshard
