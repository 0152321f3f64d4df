// Runs that resume with other settings, through the program train.

#include <csignal>
#include <filesystem>
#include <fstream>

#include "checkpoint/checksums.h"
#include "runtime/fingerprint.h"
#include "tests/checkpoint_content.h"
#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/report/metrics.h"
#include "train/save/initial_weights.h"
#include "train/save/train_state.h"
#include "train/setup/run_data.h"
#include "train/step/training_runtime.h"
#include "train/step/weights.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

// Trains 10 steps in one go. From step `change` on, the learning rate follows another schedule.
std::string hash_of_changed_schedule(const test::Workshop& workshop, int64_t change, double lr,
                                     const ScheduleConfig& schedule) {
  World world;
  Config config = load_config(workshop.file("config.toml"), {"train.steps=10"}).config;
  config.data.train = config.data.eval = workshop.file("corpus.tok");
  const RunSetup setup = set_up(config, 1);
  const RunData train(config.data.train, setup, false);
  TrainingRuntime runtime(setup, world);
  const InitialWeights none;
  runtime.engine().initialize(values_of_run(setup, none));
  for (int64_t step = 0; step < 10; ++step)
    runtime.engine().step(train.data,
                          {.data_step = step,
                           .update = step + 1,
                           .lr = step < change ? learning_rate(config.schedule, config.optimizer.lr, 10, step)
                                               : learning_rate(schedule, lr, 10, step),
                           .loss_scale = 1,
                           .targets = train.data.target_count(step)});
  return weights_hash(runtime.engine(), world);
}

}  // namespace

TEST_CASE(
    "a run resumed with another learning rate has the bits of a run whose schedule changes at that step") {
  const test::Workshop workshop("change_lr");
  const std::string expected =
      hash_of_changed_schedule(workshop, 4, 2e-3, {.kind = ScheduleKind::cosine, .min_lr_factor = 0.1});
  const test::Finished before = workshop.train(1, "--run.dir=a --train.steps=10 --checkpoint.save_every=4");
  REQUIRE_MESSAGE(before.exit_code == 0, before.output);
  REQUIRE(expected.size() == 64);
  CHECK(expected != hash_of(before));
  const bool has_ranks = test::no_ranks_because().empty();
  for (const int ranks : {1, 2, 4}) {
    if (ranks > 1 && !has_ranks) continue;
    const test::Finished changed =
        workshop.train(ranks, str("--overwrite --resume a/step-4 --run.dir=b", ranks,
                                  " --train.steps=10 --optimizer.lr=2e-3 --schedule.kind=cosine "
                                  "--schedule.min_lr_factor=0.1"));
    CAPTURE(changed.output);
    CHECK(hash_of(changed) == expected);
    for (const char* line : {"changed since step 4: optimizer.lr 0.01 -> 0.002\n",
                             "changed since step 4: schedule.kind \"linear\" -> \"cosine\"\n",
                             "changed since step 4: schedule.min_lr_factor 0.0 -> 0.1\n",
                             "learning rate: 0.007 in step 4, 0.00137812 in step 5\n"})
      CHECK(changed.output.find(line) != std::string::npos);
  }
}

TEST_CASE("changes accumulate in checkpoints and in config.toml, and a later resume continues bit for bit") {
  const test::Workshop workshop("change_history");
  const auto run = [&](const std::string& options) {
    const test::Finished ran = workshop.train(1, "--train.steps=12 --checkpoint.save_every=3 " + options);
    REQUIRE_MESSAGE(ran.exit_code == 0, ran.output);
    return ran;
  };
  run("--run.dir=a");
  run("--overwrite --run.dir=b --resume a/step-3 --optimizer.weight_decay=0.3 --optimizer.grad_clip=0.1");
  const std::string last =
      "--optimizer.weight_decay=0.3 --optimizer.grad_clip=0.1 --optimizer.lr=1e-3 "
      "--train.total_batch_size=12 ";
  const test::Finished changed = run("--overwrite --run.dir=c --resume b/step-6 " + last);
  const test::Finished resumed = run("--overwrite --run.dir=d --resume c/step-9 " + last);
  CHECK(hash_of(resumed) == hash_of(changed));
  CHECK(resumed.output.find("changed since") == std::string::npos);
  for (const char* folder : {"c", "d"}) {
    const std::string config = test::read_file(workshop.file(str(folder, "/config.toml")));
    CHECK(config.find("\n# changed since step 3: optimizer.grad_clip 0.5 -> 0.1\n"
                      "# changed since step 3: optimizer.weight_decay 0.1 -> 0.3\n"
                      "# changed since step 6: optimizer.lr 0.01 -> 0.001\n"
                      "# changed since step 6: train.total_batch_size 8 -> 12\n") != std::string::npos);
    CHECK(read_train_state(workshop.file(str(folder, "/step-12/train_state.json"))).changes.size() == 4);
  }
  CHECK(test::checkpoint_content(workshop.file("c/step-12")) ==
        test::checkpoint_content(workshop.file("d/step-12")));
  int64_t before = 0;  // 8 and then 12 sequences of 16 tokens in a step, less at the end of an epoch
  for (const StepMetrics& m : read_metrics(workshop.file("d/metrics.jsonl"))) {
    CHECK(m.tokens - before <= (m.step <= 6 ? 8 : 12) * 16);
    before = m.tokens;
  }
}

TEST_CASE("a finished run is extended, and the change of its learning rate is printed") {
  const test::Workshop workshop("change_steps");
  const std::string options = "--run.dir=run --checkpoint.save_every=6 ";
  REQUIRE(workshop.train(1, options).exit_code == 0);
  const test::Finished longer = workshop.train(1, options + "--resume latest --train.steps=12");
  CAPTURE(longer.output);
  CHECK(longer.exit_code == 0);
  CHECK(longer.output.find("changed since step 6: train.steps 6 -> 12\n"
                           "          learning rate: 0.00166667 in step 6, 0.005 in step 7\n") !=
        std::string::npos);
  const test::Finished again = workshop.train(
      1, options + "--resume latest --train.steps=18 --optimizer.lr=1e-3 --schedule.start_step=12");
  CAPTURE(again.output);
  CHECK(again.exit_code == 0);
  CHECK(again.output.find(", 0.001 in step 13\n") != std::string::npos);
  CHECK(workshop.train(1, "--run.dir=x --schedule.start_step=2").output ==
        "train: schedule.start_step = 2 is after step 0, with which the run begins: lower it\n");
  CHECK(!fs::exists(workshop.file("x")));
}

TEST_CASE("a run continues with other tokens, in the epoch that it was in") {
  const test::Workshop workshop("change_data");
  REQUIRE(workshop.train(1, "--run.dir=a --checkpoint.save_every=3").exit_code == 0);
  const test::Workshop other("change_data/other");
  {
    TokenWriter writer(workshop.file("other.tok"), test::Workshop::kVocab);
    for (int document = 0; document < 8; ++document) writer.add_document(std::vector<int32_t>(20, document));
    writer.finish();
  }
  const test::Finished on =
      workshop.train(1, "--resume a/step-3 --run.dir=b --data.train=other.tok --checkpoint.save_every=3");
  CAPTURE(on.output);
  CHECK(on.exit_code == 0);
  CHECK(on.output.find("changed since step 3: data.train \"corpus.tok\" -> \"other.tok\"\n") !=
        std::string::npos);
  CHECK(on.output.find("epoch 1 begins again") != std::string::npos);
}

TEST_CASE("results of an earlier run are replaced only with --overwrite") {
  const test::Workshop workshop("change_overwrite");
  REQUIRE(workshop.train(1, "").exit_code == 0);
  const auto plain = [&](const std::string& options) {
    return test::run_command("cd change_overwrite && @train config.toml " + options);
  };
  CHECK(plain("").output ==
        "train: runs/default/model: is the result of an earlier run: choose another run.dir, or replace it "
        "with "
        "--overwrite\n");
  REQUIRE(plain("--run.dir=other --checkpoint.save_every=3").exit_code == 0);
  CHECK(plain("--resume other/step-3").output.find("model: is the result of an earlier run") !=
        std::string::npos);
  CHECK(plain("--run.dir=other --resume latest --overwrite").output ==
        "train: other: --overwrite would remove the checkpoints of the run that is to be resumed: leave it "
        "out\n");
  std::ofstream(workshop.file("other/model/notes.txt")) << "mine";
  CHECK(plain("--run.dir=other --overwrite").output ==
        "train: other/model: was not written by a run: move it away\n");
  CHECK(fs::exists(workshop.file("other/step-3")));
  fs::remove(workshop.file("other/model/notes.txt"));
  REQUIRE(plain("--run.dir=other --overwrite --train.steps=2").exit_code == 0);
  CHECK(!fs::exists(workshop.file("other/step-3")));
  CHECK(!fs::exists(workshop.file("other/latest")));
  CHECK(fs::exists(workshop.file("other/model/config.json")));
}

TEST_CASE("checkpoints by the clock are saved between and at the end, and are not evaluated") {
  const test::Workshop workshop("change_clock");
  const test::Finished run =
      workshop.train(1, "--run.dir=run --checkpoint.save_every=0.000001s --train.eval_every=100");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  for (const char* step : {"run/step-1", "run/step-6"}) CHECK(fs::exists(workshop.file(step)));
  for (const StepMetrics& m : read_metrics(workshop.file("run/metrics.jsonl")))
    CHECK(m.eval_loss.has_value() == (m.step == 6));
  const test::Finished rare = workshop.train(1, "--run.dir=rare --checkpoint.save_every=2h");
  CHECK(rare.exit_code == 0);
  CHECK(test::read_file(workshop.file("rare/latest")) == "step-6\n");
  CHECK(!fs::exists(workshop.file("rare/step-1")));
  CHECK(workshop.train(1, "--checkpoint.save_every=5x")
            .output.find("checkpoint.save_every is \"5x\", must be") != std::string::npos);
}

TEST_CASE("Ctrl-C stops a run that train has launched after its step, once it has saved") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("change_launch");
  const test::Finished run = test::run_command(
      "cd change_launch; export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; @train "
      "config.toml "
      "--launch 'mpirun --oversubscribe -np 2' --train.steps=1000000 --schedule.kind=constant "
      "--train.eval_every=1000000 > out 2>&1 & until [ -s runs/default/metrics.jsonl ]; do sleep 0.05; done; "
      "kill "
      "-TERM $!; wait $!; echo code $?; cat out",
      100);
  CAPTURE(run.output);
  CHECK(run.output.starts_with("code 0\n"));
  const size_t said = run.output.find("stopping after this step");
  REQUIRE(said != std::string::npos);
  CHECK(run.output.find("stopping after this step", said + 1) == std::string::npos);
  CHECK(run.output.find("stopped   after step ", said) != std::string::npos);
  CHECK(fs::exists(workshop.file("runs/default/latest")));
}

TEST_CASE("a checkpoint with fingerprints of an earlier version resumes where it was") {
  const test::Workshop workshop("change_version");
  {
    TokenWriter writer(workshop.file("large.tok"), test::Workshop::kVocab);  // more than was hashed whole
    std::vector<int32_t> tokens(100000);
    for (int document = 0; document < 25; ++document) {
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * i % 53);
      writer.add_document(tokens);
    }
    writer.finish();
  }
  const std::string options = "--data.train=large.tok --train.steps=4 --checkpoint.save_every=2 ";
  const test::Finished whole = workshop.train(1, options + "--run.dir=a");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const std::string now = fingerprint({workshop.file("large.tok")}),
                    then = sampled_fingerprint({workshop.file("large.tok")}),
                    folder = workshop.file("a/step-2");
  CHECK(now != then);
  std::string state = test::read_file(folder + "/train_state.json");
  const size_t at = state.find(now);
  REQUIRE(at != std::string::npos);
  state.replace(at, now.size(), then);
  std::ofstream(folder + "/train_state.json") << state;
  Checksums sums = Checksums::read(folder);
  sums.add("train_state.json", state);
  std::ofstream(folder + "/checksums") << sums.text();
  const test::Finished resumed = workshop.train(1, options + "--run.dir=b --resume a/step-2");
  CHECK_MESSAGE(hash_of(resumed) == hash_of(whole), resumed.output);
  CHECK(resumed.output.find("changed since") == std::string::npos);
}
