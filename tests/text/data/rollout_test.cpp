#include "text/data/rollout.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

Record record_of(const std::string& json) { return {.text = json, .is_json = true, .where = "a.jsonl:3"}; }

Rollout parsed(const std::string& json) { return rollout_of(record_of(json)); }

std::string error(const std::string& json) {
  return test::error_of([&] { parsed(json); });
}

}  // namespace

TEST_CASE("a rollout has texts or tokens, and an advantage, one per token, or a reward in a group") {
  const Rollout text = parsed(R"({"prompt":"a","completion":"b","logprobs":[-0.5,-1],"advantage":2,"id":7})");
  CHECK(text.sample->text == R"({"prompt":"a","completion":"b","id":7})");
  CHECK(text.sample->where == "a.jsonl:3");
  CHECK(text.values.logprobs == std::vector<float>{-0.5, -1});
  CHECK(text.advantage == 2.0);
  const Rollout tokens = parsed(R"({"prompt_ids":[1,2],"completion_ids":[3],"advantages":[0.5]})");
  CHECK_FALSE(tokens.sample.has_value());
  CHECK(tokens.prompt == std::vector<int32_t>{1, 2});
  CHECK(tokens.completion == std::vector<int32_t>{3});
  CHECK(tokens.values.advantages == std::vector<float>{0.5});
  CHECK(tokens.values.logprobs.empty());
  const Rollout rewarded = parsed(R"({"prompt":"a","completion":"b","reward":-1,"group":"x"})");
  CHECK(rewarded.values.reward == -1.0);
  CHECK(rewarded.values.group == "\"x\"");
  CHECK(parsed(R"({"prompt":"a","completion":"b","reward":0,"group":5})").values.group == "5");
}

TEST_CASE("members that are null are absent, as in rows of a table") {
  const Rollout rollout = parsed(R"({"prompt":"a","completion":"b","prompt_ids":null,"logprobs":null,
                                     "advantage":2,"advantages":null,"reward":null,"group":null})");
  CHECK(rollout.advantage == 2.0);
  CHECK(rollout.values.logprobs.empty());
  CHECK(rollout.sample->text == R"({"prompt":"a","completion":"b"})");
  CHECK(error(R"({"prompt":"a","completion":"b","advantage":null})").find("has none of \"advantage\"") !=
        std::string::npos);
}

TEST_CASE("the advantage of a reward is its distance from the mean of its group in standard deviations") {
  const auto near = [](std::vector<double> rewards, const std::vector<double>& wanted) {
    const std::vector<float> found = advantages_of(rewards);
    REQUIRE(found.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(found[i] == doctest::Approx(wanted[i]).epsilon(1e-6));
  };
  near({1, 2}, {-0.70700679, 0.70700679});                             // 0.5 / (sqrt(1 / 2) + 1e-4)
  near({1, 0, 0, 1}, {0.8658754, -0.8658754, -0.8658754, 0.8658754});  // 0.5 / (sqrt(1 / 3) + 1e-4)
  near({3, 3, 3}, {0, 0, 0});
  near({3}, {0});
}

TEST_CASE("the error for a record that is no rollout names its line, and what it must have") {
  CHECK(error(R"({"prompt":"a","completion":"b"})").starts_with("a.jsonl:3: has none of \"advantage\""));
  CHECK(error(R"({"prompt":"a","completion":"b","advantage":1,"reward":1,"group":1})")
            .starts_with("a.jsonl:3: has more than one of \"advantage\""));
  CHECK(error(R"({"prompt":"a","completion":"b","reward":1})").find("must have a \"group\"") !=
        std::string::npos);
  CHECK(error(R"({"prompt":"a","completion":"b","reward":1,"group":[1]})").find("must have a \"group\"") !=
        std::string::npos);
  CHECK(error(R"({"prompt":"a","advantage":1})").starts_with("a.jsonl:3: has no \"prompt\" or no"));
  CHECK(error(R"({"prompt_ids":[1],"advantage":1})").starts_with("a.jsonl:3: has no \"completion_ids\""));
  CHECK(error(R"({"prompt_ids":[],"completion_ids":[1],"advantage":1})") ==
        "a.jsonl:3: \"prompt_ids\" must be a list that is not empty");
  CHECK(error(R"({"prompt_ids":[-1],"completion_ids":[1],"advantage":1})") ==
        "a.jsonl:3: \"prompt_ids\" has -1, which is not a token");
  CHECK(error(R"({"prompt":"a","completion":"b","advantage":"1"})") ==
        "a.jsonl:3: \"advantage\" has a value of type string, must be a number");
  CHECK(error(R"({"prompt":"a","completion":"b","advantage":1,"logprobs":[null]})") ==
        "a.jsonl:3: \"logprobs\" has a value of type null, must be a number");
  CHECK(error(R"({"prompt":"a","completion":"b","advantage":1e300})").find("range of 32-bit floats") !=
        std::string::npos);
  CHECK(error("[1]") == "a.jsonl:3: is JSON of type array, must be an object");
  CHECK(test::error_of([] { rollout_of({.text = "a", .where = "a.txt"}); }) ==
        "a.txt: is a text, and a rollout is a JSON object");
}

TEST_CASE("a log-probability is not above 0, but for rounding") {
  const auto error_for = [](const std::string& value) {
    return error(R"({"prompt":"a","completion":"b","advantage":1,"logprobs":[-5.5,)" + value + "]}");
  };
  for (const char* possible : {"0", "-0.0", "-80", "1e-6", "0.001"}) CHECK(error_for(possible) == "");
  CHECK(test::missing_from(error_for("5.25"), {"a.jsonl:3: ", "\"logprobs\" has 5.25 for token 2",
                                               "at most 0.001", "negative log-likelihoods"}) == "");
  CHECK(test::missing_from(error_for("0.0011"), {"0.0011", "at most 0.001"}) == "");
  CHECK(error_for("NaN").starts_with("a.jsonl:3: "));   // as Python writes it
  CHECK(error_for("null").starts_with("a.jsonl:3: "));  // as a table has it
  CHECK(error_for("1e999").starts_with("a.jsonl:3: "));
}
