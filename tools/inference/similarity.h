#pragma once
// The similarity score of a model's answers: for each record, 1 - cos of the mean final hidden states of the
// answer and of the reference, each read alone. It is 0 for the same text, and at worst 2. If one of them is
// empty the score is 1, if both are it is 0. Ranks divide the records; the scores do not depend on the number
// of ranks.

#include <string>
#include <vector>

#include "comm/world.h"
#include "hub/text_codec.h"
#include "text/chat/prompt_file.h"
#include "tools/inference/continuation.h"

namespace flatshard {

struct ScoredAnswer {
  std::string answer;
  double score = 0;
  bool exact = false;  // equals the reference, apart from white space around the two
};

struct SimilarityOptions {
  DType dtype = DType::f32;
  Device device = Device::cpu();
  int64_t most_tokens = 512, batch = 8;
};

// 1 - cos(a, b)
double cosine_distance(const std::vector<double>& a, const std::vector<double>& b);

// The greedy answers to the records, in their order, on all ranks. Each record must have a reference.
std::vector<ScoredAnswer> score_answers(const ModelSource& source, const TextCodec& codec,
                                        const std::vector<PromptRecord>& records,
                                        const SimilarityOptions& options, World& world);

double average_score(const std::vector<ScoredAnswer>& answers);

int64_t exact_answers(const std::vector<ScoredAnswer>& answers);

// Returns "every answer is its reference", or the number of such answers, and a few of the others with their
// scores.
std::string describe_differences(const std::vector<PromptRecord>& records,
                                 const std::vector<ScoredAnswer>& answers);

// One row per record and a last row with the averages. Columns: data_id (the index of the record, unless it
// has one), item_name and image_name if a record has them, user_question, model_generated_answer,
// ground_truth_answer, semantic_similarity_score, exact_match (1 or 0).
std::string similarity_csv(const std::vector<PromptRecord>& records,
                           const std::vector<ScoredAnswer>& answers);

}  // namespace flatshard
