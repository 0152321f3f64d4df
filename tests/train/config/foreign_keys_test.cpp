#include "train/config/foreign_keys.h"

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <vector>

#include "runtime/whole_file.h"
#include "tests/process.h"
#include "tests/test.h"
#include "train/config/foreign_import.h"
#include "train/config/unknown_key.h"

using namespace flatshard;

namespace {

const std::vector<Field>& known() {
  static Config config;
  static const std::vector<Field> all = fields(config);
  return all;
}

bool is_known(const std::string& key) {
  return std::any_of(known().begin(), known().end(), [&](const Field& f) { return f.key == key; });
}

std::string message(const std::string& key) { return unknown_key(known(), key).message; }

// Which of these the message for an unknown key lacks, after the key itself.
std::string missing(const std::string& key, std::initializer_list<std::string> parts) {
  const std::string text = message(key), known_part = "unknown key " + key + "; ";
  return text.starts_with(known_part) ? test::missing_from(text.substr(known_part.size()), parts) : text;
}

}  // namespace

TEST_CASE("every spelling of another trainer leads to a key that exists") {
  std::set<std::string> spellings;
  for (const ForeignKey& row : foreign_keys()) {
    CAPTURE(std::string(row.spellings));
    for (const std::string& spelling : split(row.spellings, ' ')) {
      CHECK_MESSAGE(spellings.insert(spelling).second, spelling);
      CHECK_FALSE_MESSAGE(is_known(spelling), spelling);
    }
    CHECK((*row.key ? is_known(row.key) : *row.text != 0));
    for (const ForeignValue& value : row.values)
      for (const std::string& key : split(value.key, ' '))
        CHECK_MESSAGE((is_known(key) || key == "lora" || key == "quant"), key);
    const std::string text = row.text;
    const std::regex key(
        "(run|model|lora|quant|data|train|optimizer|schedule|precision|parallel|log|checkpoint)\\.[a-z_]+");
    for (std::sregex_iterator it(text.begin(), text.end(), key), end; it != end; ++it)
      CHECK_MESSAGE(is_known(it->str()), it->str());
  }
}

TEST_CASE("another trainer's spelling is answered with our key and the meaning of its value") {
  CHECK(missing("gradient_accumulation_steps",
                {"train.total_batch_size", "ranks x batch_size_per_device x gradient_accumulation_steps",
                 "sequences per optimizer step"}) == "");
  CHECK(missing("optimizer.learning_rate", {"optimizer.lr", "peak learning rate"}) == "");
  CHECK(missing("zero_optimization.stage", {"parallel.strategy = \"no_shard\" for 0"}) == "");
  CHECK(missing("optim", {"optimizer.kind", "\"adamw8bit\"", "\"lion\"", "\"paged_lion32bit\""}) == "");
  CHECK(missing("eval_strategy", {"train.eval_every = 0 for no, train.eval_each_epoch = true for epoch"}) ==
        "");
  CHECK(missing("async_mode", {"checkpoint.async = false for disabled, otherwise true"}) == "");
  CHECK(missing("model.dropout", {"no such setting", "without dropout", "lora.dropout"}) == "");
  CHECK(unknown_key(known(), "n_embd").meant == "model.hidden");
  CHECK(unknown_key(known(), "compile").meant.empty());
}

TEST_CASE("a foreign spelling is recognized in any section, with dashes and capitals") {
  CHECK(foreign_key("training.Max-Steps")->key == std::string("train.steps"));
  CHECK(foreign_key("lora.r")->key == std::string("lora.rank"));
  CHECK(foreign_key("r") == nullptr);
  CHECK(foreign_key("train.step") == nullptr);
}

TEST_CASE("a value is among words that equal it, that a star completes, or that are the same number") {
  for (const char* words : {"cosine", "linear cosine", "*sine", "cos*", "*osin*", "*"})
    CHECK_MESSAGE(is_among("cosine", words), words);
  for (const char* words : {"", "cos", "sine", "sine*", "*cos", "cosines"})
    CHECK_MESSAGE(!is_among("cosine", words), words);
  CHECK(is_among("0.0", "false 0"));
  CHECK(is_among("1e0", "1"));
  CHECK_FALSE(is_among("0x0", "0"));
  CHECK_FALSE(is_among("", "0"));
}

TEST_CASE("a misspelt key of ours leads to the nearest one") {
  CHECK(unknown_key(known(), "train.stps").meant == "train.steps");
  CHECK(missing("train.stps", {"nearest", " train.steps"}) == "");
  CHECK(unknown_key(known(), "trian.stps").meant == "train.steps");
  CHECK(unknown_key(known(), "warmup_ratio").meant == "schedule.warmup_ratio");
  CHECK(unknown_key(known(), "train.warmup_step").meant == "schedule.warmup_steps");
  CHECK(unknown_key(known(), "dataset.seq_len").meant == "data.seq_len");
  CHECK(unknown_key(known(), "optimizer.beta").meant == "optimizer.betas");
  CHECK(missing("kind", {"nearest", "model.rope_scaling.kind", "optimizer.kind", "schedule.kind"}) == "");
  CHECK(unknown_key(known(), "kind").meant.empty());
}

TEST_CASE("a key that resembles none of ours is not answered with a guess") {
  for (const std::string key : {"foo", "log.colour", "lora.wd", "optimizer.foo", "data.mix", "x.y.z",
                                "train.foo", "run.abc", "schedule.power", "", "."}) {
    CAPTURE(key);
    CHECK(missing(key, {"none like it", "train --help"}) == "");
    CHECK(unknown_key(known(), key).meant.empty());
  }
  CHECK(test::missing_from(unknown_section(known(), "optimiser"), {"[optimiser]", "[optimizer]"}) == "");
  CHECK(test::missing_from(unknown_section(known(), "foo"),
                           {"[foo]",
                            "[run], [model], [model.rope_scaling], [lora], [quant], [data], [train], "
                            "[preference], [policy], [optimizer], [schedule], [precision], [parallel], "
                            "[checkpoint], [log]"}) == "");
}

TEST_CASE("what does not exist here is said plainly, and what exists is named") {
  for (const std::string key : {"ppo.lr", "reward_model", "num_generations"}) {
    CAPTURE(key);
    CHECK(missing(key, {"no such setting", "no reward models", "train.loss"}) == "");
  }
  CHECK(missing("dpo_beta", {"preference.beta"}) == "");
  CHECK(missing("loss_type", {"train.loss", "orpo"}) == "");
  CHECK(missing("ref_model", {"no such setting", "kept beside the tokens"}) == "");
  for (const std::string key : {"log.wandb", "wandb.project", "wandb_entity", "metric_logger.log_dir"}) {
    CAPTURE(key);
    CHECK(missing(key, {"no such setting", "metrics.jsonl", "report.html"}) == "");
  }
  CHECK(missing("parallel.pipeline_parallel_degree", {"parallel.stages", "pipeline stages"}) == "");
  CHECK(missing("pipeline_model_parallel_size", {"parallel.stages"}) == "");
  CHECK(missing("tensor_parallel_degree", {"no tensor, sequence or context parallelism"}) == "");
  CHECK(missing("expert_model_parallel_size", {"parallel.expert_ranks"}) == "");
}

namespace {

// An assignment of a TOML value to a key, as the command line takes it, is accepted.
void check_accepted(const std::string& key, const std::string& value) {
  CAPTURE(key);
  CAPTURE(value);
  const std::string file = "foreign_keys_test_empty.toml";
  write_whole_file(file, "");
  CHECK(test::error_of([&] { load_config(file, {key + "=" + value}); }).empty());
  std::filesystem::remove(file);
}

std::vector<std::smatch> matches(const std::string& text, const std::regex& pattern) {
  return {std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator()};
}

}  // namespace

TEST_CASE("every setting that is suggested for another trainer's key is accepted") {
  const std::regex assignment(R"(([a-z]+\.[a-z_.]+) = ("[^"]*"|true|false|[0-9.]+))");
  const std::regex own(R"(\[[^\]]*"[^\]]*\]|"[^"]*"|\b(true|false) for\b|^(true|[0-9]+)\b(?! /))");
  int count = 0;
  for (const ForeignKey& row : foreign_keys()) {
    CAPTURE(std::string(row.spellings));
    const std::string text = meaning_of(row, known());
    for (const std::smatch& found : matches(text, assignment)) {
      check_accepted(found[1], found[2]);
      ++count;
    }
    if (!*row.key) continue;
    const std::string rest = std::regex_replace(text, assignment, "");
    for (const std::smatch& found : matches(rest, own)) {
      const std::string value = found.str();
      check_accepted(row.key, value.substr(0, value.find(" for")));
      ++count;
    }
  }
  CHECK(count > 140);
}

TEST_CASE("programs, commands and options that answers name exist") {
  std::set<std::string> seen;
  for (const ForeignKey& row : foreign_keys()) {
    CAPTURE(std::string(row.spellings));
    const std::string text = row.text;
    std::string program = "train";
    for (const char* const other : {"prepare", "generate", "evaluate", "ckpt"})
      if (text.find(str(other, " --")) != text.npos) program = other;
    for (const std::smatch& found : matches(text, std::regex("--[a-z-]+")))
      if (seen.insert(program + found.str()).second)
        CHECK_MESSAGE(
            test::run_command("@" + program + " --help").output.find(found.str() + " ") != std::string::npos,
            found.str());
    const std::regex command(R"re("((?:ckpt|evaluate) [a-z-]+)")re");
    for (const std::smatch& found : matches(text, command))
      if (seen.insert(found[1]).second)
        CHECK_MESSAGE(test::run_command(str("@", found[1].str(), " --help")).exit_code == 0, found.str());
  }
  CHECK(seen.contains("train--accelerate"));
  CHECK(seen.contains("prepare--eval-out"));
  CHECK(seen.contains("ckpt merge-adapter"));
}
