#include "text/chat/conversation.h"

#include "runtime/json.h"
#include "tests/test.h"
#include "text/jinja/jinja_print.h"

using namespace flatshard;

namespace {

ChatRecord record(const std::string& json) { return parse_chat_record(json, "f.jsonl:3"); }

std::string shown(const ChatRecord& record) {
  return jinja_repr(JinjaValue::list(record.conversation.messages)).bytes();
}

std::string error(const std::string& json) {
  return test::error_of([&] { record(json); });
}

}  // namespace

TEST_CASE("all forms of records are read") {
  CHECK(shown(record(R"({"messages": [{"role": "user", "content": "a", "n": 1.5}]})")) ==
        "[{'role': 'user', 'content': 'a', 'n': 1.5}]");
  CHECK(shown(record(R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"},
                                           {"from": "system", "value": "c"}]})")) ==
        "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}, "
        "{'role': 'system', 'content': 'c'}]");
  const ChatRecord texts = record(R"({"prompt": "p", "completion": "c"})");
  CHECK(texts.has_prompt);
  CHECK(texts.prompt + texts.completion == "pc");
  const ChatRecord both = record(
      R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})");
  CHECK(both.has_prompt);
  CHECK(both.prompt_messages == 1);
  CHECK(both.conversation.role(1) == "assistant");
  const ChatRecord tools = record(R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"x": null}],
                                      "chat_template_kwargs": {"enable_thinking": false}})");
  CHECK(jinja_repr(tools.conversation.variables.at("tools")).bytes() == "[{'x': None}]");
  CHECK_FALSE(tools.conversation.variables.at("enable_thinking").boolean());
}

TEST_CASE("a record of Alpaca is a conversation: instruction and input are the question, output the answer") {
  const auto alpaca = [](const std::string& members) { return shown(record("{" + members + "}")); };
  CHECK(alpaca(R"("instruction": "Add.", "input": "1 2", "output": "3")") ==
        "[{'role': 'user', 'content': 'Add.\\n1 2'}, {'role': 'assistant', 'content': '3'}]");
  for (const char* none : {R"("input": "", )", R"("input": null, )", ""})
    CHECK(alpaca(none + std::string(R"("output": "b", "instruction": "a")")) ==
          "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'content': 'b'}]");
  CHECK(alpaca(R"("instruction": "c", "output": "d", "system": "s", "history": [["a", "b"]])") ==
        "[{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'a'}, {'role': 'assistant', "
        "'content': 'b'}, {'role': 'user', 'content': 'c'}, {'role': 'assistant', 'content': 'd'}]");
  CHECK_FALSE(record(R"({"instruction": "a", "output": "b"})").has_prompt);
  CHECK(error(R"({"instruction": "a"})") == "f.jsonl:3: has an \"instruction\", but no \"output\"");
  CHECK(error(R"({"instruction": 1, "output": "b"})") ==
        "f.jsonl:3: \"instruction\" is of type number, must be a string");
  CHECK(test::missing_from(error(R"({"instruction": "a", "output": "b", "history": [["c"]]})"),
                           {"f.jsonl:3: ", "\"history\"", "two texts"}) == "");
}

TEST_CASE("reasoning has all the names that templates read") {
  CHECK(
      shown(record(R"({"messages": [{"role": "assistant", "content": "a", "reasoning": "r"}]})")) ==
      "[{'thinking': 'r', 'role': 'assistant', 'content': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}]");
}

TEST_CASE("a member of a record or a message that is null is absent, one in a value of a message is not") {
  CHECK(shown(record(R"({"messages": [{"role": "user", "content": "a", "name": null},
                                      {"content": null, "role": "assistant", "tool_calls": [{"id": null}]}],
                         "prompt": null, "chat_template_kwargs": null})")) ==
        "[{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [{'id': None}]}]");
  const ChatRecord pair =
      record(R"({"messages": null, "conversations": null, "prompt": "p", "completion": "c", "tools": null})");
  CHECK(pair.prompt + pair.completion == "pc");
  CHECK(pair.conversation.variables.empty());
  CHECK(shown(record(R"({"conversations": [{"from": "gpt", "value": null}]})")) == "[{'role': 'assistant'}]");
  CHECK(error(R"({"messages": null})").starts_with("f.jsonl:3: a record must have \"messages\""));
  CHECK(error(R"({"messages": [{"role": null}]})") == "f.jsonl:3: message 1 has no role");
}

TEST_CASE("tools may be written as a text of JSON") {
  const std::string tools = R"([{"type": "function", "function": {"name": "f"}}])";
  const auto read = [](const nlohmann::json& value) {
    const nlohmann::json all{{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"tools", value}};
    return jinja_repr(record(all.dump()).conversation.variables.at("tools")).bytes();
  };
  CHECK(read(tools) == "[{'type': 'function', 'function': {'name': 'f'}}]");
  CHECK(test::missing_from(error(R"({"messages": [{"role": "user"}], "tools": "[{"})"),
                           {"f.jsonl:3: ", "\"tools\"", "invalid JSON"}) == "");
}

TEST_CASE("a broken record is refused with its place") {
  CHECK(error("{").starts_with("f.jsonl:3: invalid JSON"));
  CHECK(error("[]") == "f.jsonl:3: a record must be an object");
  CHECK(error(R"({"text": "x"})") ==
        "f.jsonl:3: a record must have \"messages\", \"conversations\", \"prompt\" and \"completion\", or "
        "\"instruction\" and \"output\"");
  CHECK(error(R"({"messages": []})") == "f.jsonl:3: \"messages\" has no messages");
  CHECK(error(R"({"messages": [1]})") == "f.jsonl:3: message 1 is not an object");
  CHECK(error(R"({"messages": [{"role": "user"}, {"content": "x"}]})") == "f.jsonl:3: message 2 has no role");
  CHECK(error(R"({"messages": "x"})") == "f.jsonl:3: \"messages\" must be a list of messages");
  CHECK(error(R"({"messages": [{"role": "user", "n": 18446744073709551615}]})") ==
        "f.jsonl:3: the number 18446744073709551615 does not fit in 64 bits");
}
