#include "text/data/rollout.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "runtime/check.h"
#include "runtime/json.h"
#include "text/input/null_members.h"

namespace flatshard {
namespace {

using nlohmann::ordered_json;

constexpr double kLeastDeviation = 1e-4;

double number_of(const ordered_json& json, const char* name, const std::string& where) {
  check(json.is_number(), where, ": \"", name, "\" has a value of type ", json.type_name(),
        ", must be a number");
  const double value = json.get<double>();
  check(std::abs(value) <= std::numeric_limits<float>::max(), where, ": \"", name, "\" has ", value,
        ", which is outside the range of 32-bit floats");
  return value;
}

const ordered_json& list_of(const ordered_json& json, const char* name, const std::string& where) {
  const auto found = json.find(name);
  check(found != json.end(), where, ": has no \"", name,
        "\": a rollout has \"prompt\" and \"completion\", or ", "both \"prompt_ids\" and \"completion_ids\"");
  check(found->is_array() && !found->empty(), where, ": \"", name, "\" must be a list that is not empty");
  return *found;
}

std::vector<int32_t> tokens_of(const ordered_json& json, const char* name, const std::string& where) {
  std::vector<int32_t> tokens;
  for (const ordered_json& token : list_of(json, name, where)) {
    check(token.is_number_unsigned() && token.get<uint64_t>() <= INT32_MAX, where, ": \"", name, "\" has ",
          json_text(token, kOneLine, InvalidUtf8::replaced), ", which is not a token");
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

std::vector<float> numbers_of(const ordered_json& json, const char* name, const std::string& where) {
  std::vector<float> numbers;
  for (const ordered_json& number : list_of(json, name, where))
    numbers.push_back(static_cast<float>(number_of(number, name, where)));
  return numbers;
}

// Reads log-probabilities. Refuses negative log-likelihoods, whose ratios would be so small that nothing is
// learned.
std::vector<float> logprobs_of(const ordered_json& json, const std::string& where) {
  std::vector<float> logprobs = numbers_of(json, "logprobs", where);
  for (size_t i = 0; i < logprobs.size(); ++i)
    check(logprobs[i] <= kMostLogProbability, where, ": \"logprobs\" has ", logprobs[i], " for token ", i + 1,
          " of the completion, must be at most ", kMostLogProbability,
          ": if they are negative log-likelihoods, change their sign");
  return logprobs;
}

// Reads the rating of the answer: exactly one of three members.
void read_advantage(const ordered_json& json, const std::string& where, Rollout& rollout) {
  int found = 0;
  for (const char* name : {"advantage", "advantages", "reward"}) found += json.contains(name);
  check(found == 1, where, ": has ", found == 0 ? "none" : "more than one",
        " of \"advantage\", \"advantages\" and \"reward\", must have one: a number, one for each trained "
        "token, "
        "or a number with a \"group\"");
  if (json.contains("advantage")) {
    rollout.advantage = number_of(json["advantage"], "advantage", where);
  } else if (json.contains("advantages")) {
    rollout.values.advantages = numbers_of(json, "advantages", where);
  } else {
    const auto group = json.find("group");
    check(group != json.end() && group->is_primitive() && !group->is_null(), where,
          ": has a \"reward\", so it must have a \"group\", which is a text or a number: the same for all "
          "answers "
          "to a prompt");
    rollout.values.reward = number_of(json["reward"], "reward", where);
    rollout.values.group = group->dump();
  }
}

}  // namespace

Rollout rollout_of(const Record& record) {
  const std::string& where = record.where;
  check(record.is_json, where, ": is a text, and a rollout is a JSON object");
  ordered_json json = checked_json<ordered_json>(record.text, where);
  check(json.is_object(), where, ": is JSON of type ", json.type_name(), ", must be an object");
  drop_null_members(json);
  Rollout rollout;
  read_advantage(json, where, rollout);
  if (json.contains("logprobs")) rollout.values.logprobs = logprobs_of(json, where);
  if (json.contains("prompt_ids") || json.contains("completion_ids")) {
    rollout.prompt = tokens_of(json, "prompt_ids", where);
    rollout.completion = tokens_of(json, "completion_ids", where);
    return rollout;
  }
  check(json.contains("prompt") && json.contains("completion"), where,
        ": has no \"prompt\" or no \"completion\": a rollout has both, or \"prompt_ids\" and "
        "\"completion_ids\"");
  for (const char* name : {"logprobs", "advantage", "advantages", "reward", "group"}) json.erase(name);
  rollout.sample = record;
  rollout.sample->text = json_text(json);
  return rollout;
}

std::vector<float> advantages_of(std::span<const double> rewards) {
  const auto count = static_cast<double>(rewards.size());
  const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / count;
  double squares = 0;
  for (const double reward : rewards) squares += (reward - mean) * (reward - mean);
  const double deviation = rewards.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
  std::vector<float> advantages;
  for (const double reward : rewards)
    advantages.push_back(static_cast<float>((reward - mean) / (deviation + kLeastDeviation)));
  return advantages;
}

}  // namespace flatshard
