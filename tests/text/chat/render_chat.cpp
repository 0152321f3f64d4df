// render_chat: renders conversations with chat templates, for tests/golden/published_templates.py. Reads one
// JSON object per line: {"template", "tokens", "record", "add_generation_prompt", "date"}. Writes a line
// for each: {"text", "generated": [[begin, end], ...]} in bytes, or {"error"}.

#include <iostream>

#include "runtime/check.h"
#include "runtime/json.h"
#include "text/chat/chat_template.h"

using namespace flatshard;
using nlohmann::json;

namespace {

json rendered(const json& request) {
  try {
    const ChatTemplate chat(request["template"].get<std::string>(), "template", request["tokens"]);
    const ChatRecord record = parse_chat_record(request["record"].get<std::string>(), "record");
    const Rendering rendering =
        chat.render(record.conversation, {.add_generation_prompt = request["add_generation_prompt"],
                                          .settings = {.date = request["date"], .limits = {}}});
    json generated = json::array();
    for (const TextSpan& span : rendering.generated) generated.push_back({span.begin, span.end});
    return {{"text", rendering.text}, {"generated", generated}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);)
    std::cout << rendered(json::parse(line)).dump() << '\n';
}
