#include "tests/train/lessons.h"

#include <filesystem>
#include <fstream>

#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "source_dir.h"
#include "text/data/token_file.h"

namespace flatshard::test {

using nlohmann::json;

namespace {

const std::string kGolden = str(kSourceDir, "/tests/golden/preferences/");

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> trained;
};

Answer answer_of(const json& prompt, const json& completion) {
  Answer answer{prompt.get<std::vector<int32_t>>(), std::vector<uint8_t>(prompt.size(), 0)};
  for (const json& token : completion) {
    answer.tokens.push_back(token.get<int32_t>());
    answer.trained.push_back(1);
  }
  return answer;
}

void write_pairs(const std::string& path, const json& pairs) {
  TokenWriter writer(path, 96);
  for (const json& pair : pairs)
    for (const char* const of : {"chosen", "rejected"}) {
      const Answer answer = answer_of(pair["prompt"], pair[of]);
      writer.add_document(answer.tokens, answer.trained);
    }
  writer.set_manifest(R"({"records":"pairs"})");
  writer.finish();
}

// The second answer of each is to the prompt before, among the four of a step, as in TRL.
void write_labels(const std::string& path) {
  TokenWriter writer(path, 96);
  const json records = golden_preferences("kto.json");
  for (size_t i = 0; i < records.size(); ++i) {
    const size_t other = i / 4 * 4 + (i + 3) % 4;
    float label = records[i]["label"].get<bool>() ? 1.0f : -1.0f;
    for (const size_t completion : {i, other}) {
      const Answer answer = answer_of(records[i]["prompt"], records[completion]["completion"]);
      const std::vector<float> labels(answer.tokens.size() - records[i]["prompt"].size(), label);
      writer.add_document(answer.tokens, answer.trained, {}, {.advantages = labels});
      label = 0;
    }
  }
  writer.set_manifest(R"({"records":"labels"})");
  writer.finish();
}

void write_rollouts(const std::string& path) {
  TokenWriter writer(path, 96);
  for (const json& rollout : golden_preferences("rollouts.json")) {
    const Answer answer = answer_of(rollout["prompt"], rollout["completion"]);
    const auto logprobs = rollout["old_logps"].get<std::vector<float>>();
    const std::vector<float> advantages(logprobs.size(), rollout["advantage"].get<float>());
    writer.add_document(answer.tokens, answer.trained, {}, {.logprobs = logprobs, .advantages = advantages});
  }
  writer.set_manifest(R"({"records":"rollouts"})");
  writer.finish();
}

}  // namespace

json golden_preferences(const std::string& name) {
  return json::parse(read_whole_file(kGolden + name, 1 << 20));
}

Lessons::Lessons(const std::string& folder) : folder_(folder) {
  std::filesystem::create_directories(folder);
  const json pairs = golden_preferences("pairs.json");
  write_pairs(file("pairs.tok"), pairs["pairs"]);
  write_pairs(file("short_prompts.tok"), pairs["one_token_prompts"]);
  write_labels(file("labels.tok"));
  write_rollouts(file("rollouts.tok"));
  std::ofstream(file("config.toml")) << "[model]\ninit_from = \"" << kGolden << "model\"\n"
                                     << R"(
[data]
train = "pairs.tok"
seq_len = 40
packing = "none"
shuffle = false
[train]
steps = 3
total_batch_size = 2
lane_size = 1
loss = "dpo"
[optimizer]
lr = 1e-2
betas = [0.9, 0.999]
grad_clip = 0
[schedule]
kind = "constant"
[precision]
compute = "fp32"
[checkpoint]
save_every = 0
best_every = 0
)";
}

Finished Lessons::train(int ranks, const std::string& options) const {
  const std::string again = options.find("--resume") == options.npos ? "--overwrite " : "";
  return run_command("cd " + folder_ + " && " + launcher(ranks) + "@train config.toml " + again + options);
}

}  // namespace flatshard::test
