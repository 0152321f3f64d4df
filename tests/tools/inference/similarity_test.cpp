#include "tools/inference/similarity.h"

#include <algorithm>
#include <cmath>

#include "tests/test.h"
#include "tests/tools/inference/talking_model.h"

using namespace flatshard;

namespace {

PromptRecord record(const std::string& prompt, const std::string& reference) {
  PromptRecord record;
  record.where = "data.jsonl:1";
  record.prompt = record.question = prompt;
  record.reference = reference;
  return record;
}

}  // namespace

TEST_CASE("the cosine distance is 0 for equal, 1 for orthogonal and 2 for opposite directions") {
  CHECK(cosine_distance({0.3, -0.7, 1e-3}, {0.3, -0.7, 1e-3}) == 0);
  CHECK(cosine_distance({1, 2}, {2, 4}) == doctest::Approx(0).epsilon(1e-12));
  CHECK(cosine_distance({1, 2}, {-2, 1}) == 1);
  CHECK(cosine_distance({1, 2}, {-1, -2}) == doctest::Approx(2));
}

TEST_CASE("an answer that is its reference scores 0, another one does not, in any batch") {
  const std::string folder = "similarity_model";
  test::write_talking_model(folder);
  const TextCodec codec(folder, test::kTalkingVocab);
  World world;
  SimilarityOptions options{.most_tokens = 12, .batch = 3};
  std::vector<PromptRecord> records;
  for (const char* prompt : {"One", "Two and more", "3", "Four?"}) records.push_back(record(prompt, "no"));
  const auto first = score_answers(folder, codec, records, options, world);
  for (size_t i = 0; i < records.size(); ++i) {
    CHECK(first[i].score > 0);
    if (i % 2 == 0) records[i].reference = first[i].answer;
  }
  options.batch = 1;
  const auto second = score_answers(folder, codec, records, options, world);
  for (size_t i = 0; i < records.size(); ++i) {
    CHECK(second[i].answer == first[i].answer);
    CHECK(second[i].score == (i % 2 == 0 ? 0 : first[i].score));
  }
}

TEST_CASE("a record without a reference, or too long for the model, is an error that names it") {
  const std::string folder = "similarity_errors";
  test::write_talking_model(folder);
  const TextCodec codec(folder, test::kTalkingVocab);
  World world;
  const auto error = [&](const PromptRecord& r) {
    return test::error_of([&] { score_answers(folder, codec, {r}, {.most_tokens = 12}, world); });
  };
  PromptRecord without = record("a", "");
  without.reference.reset();
  CHECK(error(without) ==
        "data.jsonl:1: has no answer to compare with: neither \"completion\" nor a last message of the "
        "assistant");
  CHECK(
      error(record(std::string(289, 'a'), "b")) ==
      "data.jsonl:1: needs 301 positions, for prompt and answer or for the reference, but the model has 300");
  CHECK(error(record("", "b")) == "data.jsonl:1: the prompt is empty, must have at least one token");
}

TEST_CASE("the table quotes its fields, has the columns that apply, and ends with the average") {
  PromptRecord first = record("a, b", "say \"hi\""), second = record("c", "d\ne");
  first.labels = {{"data_id", "x1"}, {"image_name", "i.png"}};
  CHECK(similarity_csv({first, second}, {{"plain", 0.25, false}, {"d\ne ", 1e-4, true}}) ==
        "data_id,image_name,user_question,model_generated_answer,ground_truth_answer,semantic_similarity_"
        "score,exact_match\n"
        "x1,i.png,\"a, b\",plain,\"say \"\"hi\"\"\",0.250000,0\n"
        "1,,c,\"d\ne \",\"d\ne\",0.000100,1\n"
        "average_semantic_similarity_score,,,,,0.125050,0.500000\n");
}

TEST_CASE("answers that are not their references are counted, and the first few are shown") {
  std::vector<PromptRecord> records;
  std::vector<ScoredAnswer> answers;
  for (int i = 0; i < 9; ++i) {
    records.push_back(record("a", i == 0 ? std::string(90, 'x') : "yes\n"));
    answers.push_back({i == 8 ? "yes" : "no", 3e-5, i == 8});
  }
  const std::string text = describe_differences(records, answers);
  CAPTURE(text);
  CHECK(
      text.starts_with("1 of 9 answers are their references; others:\n  data.jsonl:1: \"no\" instead of \"" +
                       std::string(80, 'x') + "...\", score 3e-05\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 6);
  CHECK(describe_differences({records[8]}, {answers[8]}) == "every answer is its reference\n");
}
