#pragma once
// Records of rollouts: answers that a model sampled, each with its advantage over other answers.
//   {"prompt": ..., "completion": ..., "logprobs": [-0.1, -2.3], "advantage": 0.5}
//   {"prompt_ids": [1, 2], "completion_ids": [3, 4], "advantages": [0.5, 0.1]}
//   {"prompt": ..., "completion": ..., "reward": 1, "group": 7}
// Prompt and completion are texts, messages or tokens. `logprobs` are the log-probabilities with which the
// tokens of the completion were sampled, at most kMostLogProbability; by default they are computed by the
// model before the step. Records with rewards form groups with the same prompt, and the records of a group
// follow one another.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/data/corpus.h"

namespace flatshard {

// No probability is above 1. In fp32, a logit minus the logarithm of the sum rounds to at most this value for
// logits up to 2^13.
inline constexpr float kMostLogProbability = 1e-3f;

// One value for each trained token of a rollout.
struct RolloutValues {
  std::vector<float> logprobs{};    // empty: none
  std::vector<float> advantages{};  // empty until the rewards of the group are known
  std::optional<double> reward{};   // instead of advantages
  std::string group{};              // group of the reward, as JSON; "" without one
};

struct Rollout {
  std::optional<Record> sample{};  // a prompt with its completion, unless these are tokens
  std::vector<int32_t> prompt{}, completion{};
  std::optional<double> advantage{};  // one advantage for all tokens
  RolloutValues values{};             // values of the record; their number is not checked
};

// An Error begins with `record.where`.
Rollout rollout_of(const Record& record);

// Computes (reward - mean) / (std + 1e-4) with the unbiased standard deviation, as in TRL's GRPO; 0 for a
// single reward.
std::vector<float> advantages_of(std::span<const double> rewards);

}  // namespace flatshard
