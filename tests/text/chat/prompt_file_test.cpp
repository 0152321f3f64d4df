#include "text/chat/prompt_file.h"

#include "tests/test.h"
#include "tests/tools/inference/talking_model.h"

using namespace flatshard;

namespace {

std::vector<PromptRecord> records_of(const std::string& lines) {
  test::write_text("prompts.jsonl", lines);
  return read_prompt_file("prompts.jsonl");
}
std::string error_of_line(const std::string& line) {
  return test::error_of([&] { records_of("\n" + line + "\n"); });
}

}  // namespace

TEST_CASE("a record is a prompt with its completion, or a conversation up to the last answer") {
  const auto records = records_of(
      R"({"prompt": "1 + 1 =", "completion": "2", "data_id": 7})"
      "\n\r\n"
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}], "item_name": "x"})"
      "\n"
      R"({"conversations": [{"from": "human", "value": "e"}]})");
  REQUIRE(records.size() == 3);
  CHECK(records[0].prompt == "1 + 1 =");
  CHECK(records[0].reference == "2");
  CHECK(records[0].question == "1 + 1 =");
  CHECK(records[0].labels == std::map<std::string, std::string>{{"data_id", "7"}});
  CHECK(records[1].conversation->messages.size() == 3);
  CHECK(records[1].reference == "d");
  CHECK(records[1].question == "c");
  CHECK(records[1].labels.at("item_name") == "x");
  CHECK(records[2].conversation->messages.size() == 1);
  CHECK(!records[2].reference);
  CHECK(records[2].question == "e");
}

TEST_CASE("turns of \"conversations\" may be messages, and keep their text") {
  const auto records = records_of(
      R"({"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})");
  CHECK(records[0].reference == "b");
  CHECK(records[0].question == "a");
}

TEST_CASE("a record of Alpaca asks its instruction and its input, and expects its output") {
  const auto records = records_of(R"({"instruction": "a", "input": "b", "output": "c"})");
  CHECK(records[0].question == "a\nb");
  CHECK(records[0].reference == "c");
}

TEST_CASE("a conversation shows images, whose paths begin at the file of prompts") {
  test::write_text("asked/prompts.jsonl",
                   R"({"messages": [{"role": "user", "content": "<image>What"}], "image": "a.png"})");
  const PromptRecord record = read_prompt_file("asked/prompts.jsonl").at(0);
  REQUIRE(record.conversation->images.size() == 1);
  CHECK(record.conversation->images[0].source.path == "asked/a.png");
  CHECK(record.question == "What");
}

TEST_CASE("an answer is added to its record, whose members keep their order") {
  const auto records = records_of(R"({"z": 1, "prompt": "p", "answer": "old", "a": [2]})");
  CHECK(with_answer(records[0], "say \"hi\"\n") == R"({"z":1,"prompt":"p","answer":"say \"hi\"\n","a":[2]})");
}

TEST_CASE("a line that is no record is an error with file and line") {
  for (const char* line :
       {"{", "[1]", "{}", R"({"prompt": 3})", R"({"prompt": "a", "completion": 3})", R"({"messages": []})",
        R"({"messages": [{"role": "assistant", "content": "a"}]})"}) {
    CAPTURE(line);
    CHECK(error_of_line(line).starts_with("prompts.jsonl:2"));
  }
  CHECK(error_of_line("{}") ==
        "prompts.jsonl:2: has neither \"messages\", \"conversations\" or \"instruction\" nor a string "
        "\"prompt\"");
  CHECK(test::error_of([] { records_of("\n\n"); }) == "prompts.jsonl: has no records");
}
