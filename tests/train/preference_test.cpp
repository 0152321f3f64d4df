// Runs that learn from preferences and rollouts, as users start them: the losses of TRL, any number of ranks,
// the reference, and what does not go together.

#include <cmath>
#include <filesystem>

#include "runtime/json.h"
#include "tests/test.h"
#include "tests/train/lessons.h"
#include "train/report/metrics.h"

using namespace flatshard;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

using test::Lessons;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::vector<StepMetrics> metrics_of(const Lessons& lessons, const std::string& run) {
  return read_metrics(lessons.file(run + "/metrics.jsonl"));
}

double value_of(const std::vector<NamedValue<double>>& values, const std::string& name) {
  for (const auto& of : values)
    if (of.name == name) return of.value;
  return NAN;
}

// The options of each case of golden.json.
const std::vector<std::pair<std::string, std::string>> kCases{
    {"dpo", ""},
    {"dpo_sft", "--preference.sft_weight=0.5"},
    {"ipo", "--train.loss=ipo"},
    {"orpo", "--train.loss=orpo --data.train=short_prompts.tok"},
    {"kto",
     "--train.loss=kto --data.train=labels.tok --train.total_batch_size=4 "
     "--preference.undesirable_weight=1.5"},
    {"grpo",
     "--train.loss=policy --data.train=rollouts.tok --policy.mean=answers --policy.clip_high=0.28 "
     "--policy.kl_weight=0.04"},
    {"gspo",
     "--train.loss=policy --data.train=rollouts.tok --policy.mean=answers --policy.ratio=answer "
     "--policy.clip_low=0.03 --policy.clip_high=0.04"},
    {"dapo", "--train.loss=policy --data.train=rollouts.tok --policy.clip_high=0.28"}};

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

}  // namespace

TEST_CASE("losses, gradients and metrics of answers are those of TRL") {
  const Lessons lessons("preferences_trl");
  const json all = test::golden_preferences("golden.json");
  for (const auto& [name, options] : kCases) {
    CAPTURE(name);
    const test::Finished run = lessons.train(1, options + " --run.dir=" + name);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    const std::vector<StepMetrics> steps = metrics_of(lessons, name);
    REQUIRE(steps.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      const json& expected = all[name]["steps"][i];
      const double tolerance = i == 0 ? 1e-5 : 1e-4;  // Adam amplifies rounding
      const auto is_close = [&](double value, const char* key) {
        const double other = expected[key].get<double>();
        CHECK_MESSAGE(std::abs(value - other) <= tolerance * std::max(1.0, std::abs(other)), key, ": ", value,
                      " is not ", other);
      };
      is_close(steps[i].loss, "loss");
      is_close(steps[i].grad_norm, "grad_norm");
      if (expected.contains("margin")) {
        is_close(value_of(steps[i].answers, "margin"), "margin");
        is_close(value_of(steps[i].answers, "chosen_reward"), "chosen_reward");
        is_close(value_of(steps[i].answers, "rejected_reward"), "rejected_reward");
        if (expected.contains("accuracy") && (i > 0 || name == "orpo"))
          is_close(value_of(steps[i].answers, "accuracy"), "accuracy");
      }
      if (expected.contains("kl")) is_close(value_of(steps[i].answers, "kl"), "kl");
      if (expected.contains("clip_share") && name != "gspo")  // whose share TRL counts by answers
        is_close(value_of(steps[i].answers, "clip_share"), "clip_share");
    }
  }
}

TEST_CASE("one hash over ranks, strategies, stages, recomputation and chunks of the head") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const Lessons lessons("preferences_ranks");
  const std::string four = "--train.total_batch_size=4 --data.shuffle=true ";
  for (const std::string& loss :
       {four, four + "--train.loss=policy --policy.kl_weight=0.1 --data.train=rollouts.tok",
        four + "--train.loss=kto --data.train=labels.tok",
        four + "--lora.rank=2 --train.loss=orpo --data.train=short_prompts.tok",
        four + "--lora.rank=2 --quant.base=nf4 --preference.sft_weight=0.5"}) {
    CAPTURE(loss);
    const test::Finished one = lessons.train(1, loss + " --run.dir=one");
    REQUIRE_MESSAGE(hash_of(one).size() == 64, one.output);
    for (const auto& [ranks, options] :
         {std::pair<int, std::string>{2, "--parallel.strategy=zero1"},
          {4, "--train.recompute=true"},
          {2, "--parallel.stages=2 --parallel.strategy=no_shard"},
          {2, "--train.batch_size_per_device=2 --train.recompute=selective --parallel.offload=true"},
          {1, "--train.head_chunk=7"}}) {
      CAPTURE(options);
      const test::Finished other = lessons.train(ranks, loss + " --run.dir=other " + options);
      CHECK_MESSAGE(hash_of(other) == hash_of(one), other.output);
      CHECK(metrics_of(lessons, "other").back().loss == metrics_of(lessons, "one").back().loss);
      CHECK(metrics_of(lessons, "other").back().answers.front().value ==
            metrics_of(lessons, "one").back().answers.front().value);
    }
  }
}

TEST_CASE("a run resumes bit for bit, and makes a missing reference again") {
  const Lessons lessons("preferences_resume");
  const std::string options = "--train.steps=4 --checkpoint.save_every=2 --run.dir=";
  const test::Finished whole = lessons.train(1, options + "whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  CHECK(has(whole.output, ".reference"));
  const test::Finished again = lessons.train(1, options + "again");
  CHECK(hash_of(again) == hash_of(whole));
  CHECK_FALSE(has(again.output, ".reference"));  // it is kept
  const test::Finished resumed = lessons.train(1, options + "resumed --resume whole/step-2");
  CHECK_MESSAGE(hash_of(resumed) == hash_of(whole), resumed.output);
  int removed = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(lessons.file(".flatshard")))
    if (entry.path().extension() == ".reference") removed += fs::remove(entry.path());
  REQUIRE(removed == 1);
  const test::Finished without = lessons.train(1, options + "without --resume whole/step-2");
  CHECK_MESSAGE(hash_of(without) == hash_of(whole), without.output);
  CHECK(has(without.output, ".reference"));
}

TEST_CASE("an evaluation has the loss, the margin and the accuracy of its pairs") {
  const Lessons lessons("preferences_eval");
  const std::string options =
      " --data.eval=pairs.tok --train.eval_every=1 --train.steps=2 --train.total_batch_size=6 ";
  const test::Finished run = lessons.train(1, options + "--run.dir=one");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const std::vector<StepMetrics> steps = metrics_of(lessons, "one");
  REQUIRE(steps.size() == 2);
  // All pairs are in each batch, so that a step begins with what the evaluation before it found.
  CHECK(*steps[0].eval_loss == doctest::Approx(steps[1].loss).epsilon(1e-6));
  CHECK(value_of(steps[0].eval_answers, "margin") ==
        doctest::Approx(value_of(steps[1].answers, "margin")).epsilon(1e-6));
  CHECK(value_of(steps[0].eval_answers, "accuracy") == value_of(steps[1].answers, "accuracy"));
  CHECK(has(run.output, "accuracy"));
}

TEST_CASE("losses of answers refuse what they cannot learn from, and keys that only others read") {
  const Lessons lessons("preferences_refused");
  for (const auto& [options, words] :
       {std::pair<std::string, std::string>{"--train.loss=sft", "learns from samples"},
        {"--data.train=rollouts.tok", "learns from pairs"},
        {"--train.loss=policy", "learns from rollouts"},
        {"--data.packing=wrapped", "set data.packing = \"best_fit\" or \"none\""},
        {"--policy.kl_weight=0.1", "policy.kl_weight has no effect with train.loss = \"dpo\""},
        {"--train.loss=orpo --preference.sft_weight=1", "preference.sft_weight has no effect"},
        {"--data.seq_len=6", "none of its 6 pairs fits data.seq_len = 6"}}) {
    CAPTURE(options);
    const test::Finished run = lessons.train(1, options + " --run.dir=run");
    CHECK(run.exit_code != 0);
    CHECK_MESSAGE(has(run.output, words), run.output);
  }
}
