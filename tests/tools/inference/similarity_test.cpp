#include "tools/inference/similarity.h"

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
  CHECK(similarity_csv({first, second}, {{"plain", 0.25}, {"", 1}}) ==
        "data_id,image_name,user_question,model_generated_answer,ground_truth_answer,semantic_similarity_"
        "score\n"
        "x1,i.png,\"a, b\",plain,\"say \"\"hi\"\"\",0.250000\n"
        "1,,c,,\"d\ne\",1.000000\n"
        "average_semantic_similarity_score,,,,,0.625\n");
}
