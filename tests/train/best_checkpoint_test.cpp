// The checkpoint of the best evaluation, through the programs train and ckpt.

#include <filesystem>
#include <fstream>

#include "tests/checkpoint_content.h"
#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/report/metrics.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// Too high a learning rate, after the first steps: the loss rises again.
const std::string kOptions =
    "--train.steps=24 --train.eval_every=2 --optimizer.lr=0.3 --optimizer.grad_clip=0 "
    "--schedule.kind=constant --schedule.warmup_steps=20 --checkpoint.save_every=30min "
    "--checkpoint.best_every=1 --checkpoint.keep=1 --run.dir=run ";

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

StepMetrics best_evaluation(const std::string& metrics) {
  std::optional<StepMetrics> best;
  for (const StepMetrics& m : read_metrics(metrics))
    if (m.eval_loss && (!best || *m.eval_loss < *best->eval_loss)) best = m;
  REQUIRE(best.has_value());
  return *best;
}

std::string ckpt_best(const test::Workshop& workshop) {
  return test::run_command("@ckpt best " + workshop.file("run"), 60).output;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a new lowest evaluation loss is saved and kept, on any number of ranks, and changes no weights") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("best_checkpoint");
  const test::Finished without = workshop.train(1, kOptions + "--checkpoint.best_every=0");
  REQUIRE_MESSAGE(hash_of(without).size() == 64, without.output);
  const StepMetrics best = best_evaluation(workshop.file("run/metrics.jsonl"));
  REQUIRE(best.step < 24);
  CHECK(has(without.output, str("best      step ", best.step, ", evaluation loss ")));
  CHECK(has(without.output, "; not saved: the best checkpoint is run/step-24, "));
  CHECK(
      has(ckpt_best(workshop), str("; step ", best.step, " had ", *best.eval_loss, ", which was not saved")));
  for (const int ranks : {1, 2}) {
    const test::Finished run = workshop.train(ranks, kOptions);
    CAPTURE(ranks);
    CHECK_MESSAGE(hash_of(run) == hash_of(without), run.output);
    CHECK(fs::exists(workshop.file(str("run/step-", best.step))));
    CHECK(has(run.output, str("; saved in run/step-", best.step, '\n')));
    CHECK(ckpt_best(workshop) ==
          str(workshop.file("run/step-"), best.step, "  evaluation loss ", *best.eval_loss, '\n'));
  }
}

TEST_CASE("the best checkpoint survives a resume, and a worse evaluation after it is not saved") {
  const test::Workshop workshop("best_resumed");
  REQUIRE(workshop.train(1, kOptions).exit_code == 0);
  const StepMetrics best = best_evaluation(workshop.file("run/metrics.jsonl"));
  const test::Finished more = workshop.train(1, kOptions + "--train.steps=30 --resume latest");
  REQUIRE_MESSAGE(more.exit_code == 0, more.output);
  CHECK(best_evaluation(workshop.file("run/metrics.jsonl")).step == best.step);
  CHECK(!has(more.output, "saved     run/step-26"));
  CHECK(fs::exists(workshop.file(str("run/step-", best.step))));
  CHECK(has(more.output, str("best      step ", best.step, ", ")));
}

TEST_CASE("RUN/best names the best checkpoint for every program, and --resume best continues from it") {
  const test::Workshop workshop("best_named");
  REQUIRE(workshop.train(1, kOptions).exit_code == 0);
  const int64_t best = best_evaluation(workshop.file("run/metrics.jsonl")).step;
  const std::string step = str("run/step-", best);
  const auto run = [](const std::string& command) {
    return test::run_command("cd best_named && " + command, 60);
  };
  CHECK(run("@ckpt export run/best out && @ckpt export " + step + " same && @ckpt diff out same").exit_code ==
        0);
  CHECK(run("@ckpt diff run/latest run/step-24").exit_code == 0);
  CHECK(run("@ckpt verify run/best").exit_code == 0);
  const std::string asked = " --prompt '1 2' --max-tokens 5 --temperature 0 2>/dev/null";
  const test::Finished named = run("@generate run/best" + asked), direct = run("@generate " + step + asked);
  CHECK_MESSAGE(named.exit_code == 0, named.output);
  CHECK(named.output == direct.output);
  CHECK(has(run("@generate run/best --prompt 1 --max-tokens 1").output, "model     " + step));

  const test::Finished from = workshop.train(1, "--model.init_from=run/best --train.steps=1 --run.dir=from");
  CHECK_MESSAGE(from.exit_code == 0, from.output);
  CHECK(has(test::read_file(workshop.file("from/config.toml")), "init_from = \"" + step + "\""));

  const test::Finished again = workshop.train(1, kOptions + "--resume best");
  CHECK_MESSAGE(has(again.output, str("resumed   ", step, ", after step ", best)), again.output);
  fs::remove_all(workshop.file(step));
  const test::Finished none = workshop.train(1, "--resume nowhere/best --run.dir=other");
  CHECK_MESSAGE(has(none.output, "nowhere/best: no such folder"), none.output);
}

TEST_CASE("a run whose checkpoints have no evaluation has no best one") {
  const test::Workshop workshop("best_unknown");
  REQUIRE(workshop.train(1, "--run.dir=run --train.eval_every=0 --data.eval=\"''\" --checkpoint.save_every=3")
              .exit_code == 0);
  const test::Finished none = test::run_command("@ckpt export best_unknown/run/best best_unknown/out", 60);
  CHECK_MESSAGE(has(none.output, "none of its 2 checkpoints has an evaluation loss"), none.output);
}

TEST_CASE("checkpoint.best_every bounds how often the best is saved") {
  const test::Workshop workshop("best_seldom");
  const auto saves = [&](const std::string& options) {
    const test::Finished run = workshop.train(
        1, "--train.steps=12 --train.eval_every=1 --checkpoint.save_every=30min --run.dir=run " + options);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    int count = 0;
    for (size_t at = 0; (at = run.output.find("saved     run/step-", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  CHECK(saves("--checkpoint.best_every=0") == 1);  // at the end
  CHECK(saves("--checkpoint.best_every=1") == 12);
  CHECK(saves("--checkpoint.best_every=5") == 4);  // 1, 6, 11 and the end
  CHECK(saves("--checkpoint.best_every=1h") == 2);
  CHECK(saves("--checkpoint.best_every=auto") >= 2);
  CHECK(saves("--checkpoint.save_every=0 --checkpoint.best_every=auto") == 0);
  CHECK(saves("--checkpoint.save_every=0 --checkpoint.best_every=5") == 3);
  const test::Finished bad = workshop.train(1, "--checkpoint.best_every=often");
  CHECK(has(bad.output, "checkpoint.best_every is \"often\", must be \"auto\", a number of steps"));
}
