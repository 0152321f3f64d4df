#include "text/data/preference.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

Record record_of(const std::string& json) {
  return {.text = json, .is_json = true, .where = "a.jsonl:3", .folder = "here"};
}

std::string both(const std::string& json) {
  const PreferencePair pair = pair_of(record_of(json));
  CHECK(pair.chosen.where == "a.jsonl:3");
  CHECK(pair.rejected.folder == "here");
  return pair.chosen.text + "\n" + pair.rejected.text;
}

std::string error(const std::string& json) {
  return test::error_of([&] { pair_of(record_of(json)); });
}

}  // namespace

TEST_CASE("a preference becomes two records of a prompt with its completion") {
  CHECK(both(R"({"prompt":"a","chosen":"b","rejected":"c","id":7})") ==
        "{\"prompt\":\"a\",\"id\":7,\"completion\":\"b\"}\n{\"prompt\":\"a\",\"id\":7,\"completion\":\"c\"}");
  CHECK(
      both(
          R"({"prompt":[{"role":"user","content":"a"}],"tools":[],"chosen":[{"role":"assistant","content":"b"}],)"
          R"("rejected":[]})") ==
      R"({"prompt":[{"role":"user","content":"a"}],"tools":[],"completion":[{"role":"assistant","content":"b"}]})"
      "\n"
      R"({"prompt":[{"role":"user","content":"a"}],"tools":[],"completion":[]})");
}

TEST_CASE("without a prompt, a preference's answers begin with it") {
  CHECK(both(R"({"chosen":[1,2,3],"rejected":[1,2,4,5]})") ==
        "{\"prompt\":[1,2],\"completion\":[3]}\n{\"prompt\":[1,2],\"completion\":[4,5]}");
  // The space before an answer is a part of its first token.
  CHECK(both(R"({"chosen":"Q: x A: yes","rejected":"Q: x A: no"})") ==
        "{\"prompt\":\"Q: x A:\",\"completion\":\" yes\"}\n{\"prompt\":\"Q: x A:\",\"completion\":\" no\"}");
  // No character is cut: these two differ in their second byte.
  CHECK(both("{\"chosen\":\"x\u00e4\",\"rejected\":\"x\u00f6\"}") ==
        "{\"prompt\":\"x\",\"completion\":\"\u00e4\"}\n{\"prompt\":\"x\",\"completion\":\"\u00f6\"}");
  CHECK(error(R"({"chosen":"a","rejected":"b"})").find("do not begin with the same") != std::string::npos);
  CHECK(error(R"({"chosen":"ab","rejected":"abc"})").find("one begins with the other") != std::string::npos);
  CHECK(error(R"({"chosen":[1],"rejected":[1]})").find("one begins with the other") != std::string::npos);
}

TEST_CASE("a record that is no preference is refused by its line") {
  CHECK(error(R"({"prompt":"a","completion":"b"})")
            .starts_with("a.jsonl:3: has no \"chosen\": a preference has"));
  CHECK(error(R"({"prompt":"a","chosen":"b"})").starts_with("a.jsonl:3: has no \"rejected\""));
  CHECK(error(R"({"prompt":"a","chosen":"b","rejected":5})") ==
        "a.jsonl:3: \"rejected\" is of type number, must be a text or a list of messages");
  CHECK(error(R"({"prompt":"a","chosen":"b","rejected":[]})") ==
        "a.jsonl:3: \"chosen\" and \"rejected\" are not of the same type");
  CHECK(error("[1]") == "a.jsonl:3: is JSON of type array, must be an object");
  CHECK(test::error_of([] { pair_of({.text = "a", .where = "a.txt"}); }) ==
        "a.txt: is a text, and a preference is a JSON object");
}
