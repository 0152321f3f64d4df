// Runs on several data sets, through the program train: one hash on any number of ranks, bitwise resume,
// changes of weights and files, and the losses of every file.

#include <cmath>
#include <filesystem>
#include <map>

#include "runtime/rng.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "text/data/token_file.h"
#include "train/report/metrics.h"
#include "train/save/train_state.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

// A workshop with two more token files: "b.tok", smaller than corpus.tok, and "c.tok". Their tokens are drawn
// from some of the vocabulary, so that their losses differ.
struct Sources : test::Workshop {
  explicit Sources(const std::string& folder) : Workshop(folder) {
    write("b.tok", 20, 10);
    write("c.tok", 12, 3);
  }
  void write(const std::string& name, int64_t documents, uint32_t tokens_in_use) const {
    TokenWriter writer(file(name), kVocab);
    const RandomStream random(2, name);
    int64_t at = 0;
    for (int64_t document = 0; document < documents; ++document) {
      std::vector<int32_t> tokens(static_cast<size_t>(9 + 5 * (document % 4)));
      for (int32_t& t : tokens) t = static_cast<int32_t>(random.bits(at++) % tokens_in_use);
      writer.add_document(tokens);
    }
    writer.finish();
  }
  test::Finished run(int ranks, const std::string& options) const {
    test::Finished ran = train(ranks, options);
    REQUIRE_MESSAGE(ran.exit_code == 0, ran.output);
    return ran;
  }
  std::string error(const std::string& options) const { return train(1, options).output; }
  std::vector<StepMetrics> metrics(const std::string& folder) const {
    return read_metrics(file(folder + "/metrics.jsonl"));
  }
};

const std::string kTwo = "--data.train='[\"corpus.tok\", \"b.tok\"]' ",
                  kEval = "--data.eval= --train.eval_every=0 ", kWeights = "--data.weights='[0.25, 0.75]' ";

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

std::map<std::string, double> by_name(const std::vector<NamedValue<double>>& values) {
  std::map<std::string, double> all;
  for (const auto& [name, value] : values) all[name] = value;
  return all;
}

int64_t targets_of(const StepMetrics& m, const std::string& name) {
  for (const auto& [file, targets] : m.file_targets)
    if (file == name) return targets;
  return 0;
}

}  // namespace

TEST_CASE("a run on two files has the same bits and losses on any number of ranks, and its losses add up") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const Sources sources("mixing_ranks");
  for (const char* const packing : {"documents", "best_fit", "wrapped"}) {
    CAPTURE(packing);
    const std::string options = kTwo + kWeights + kEval + "--train.steps=24 --data.packing=" + packing + ' ';
    std::string first;
    std::vector<StepMetrics> lines;
    for (const int ranks : {1, 2, 4}) {
      const std::string folder = str("run", ranks);
      const test::Finished run = sources.run(ranks, options + "--run.dir=" + folder);
      if (first.empty()) first = hash_of(run), lines = sources.metrics(folder);
      CHECK(hash_of(run) == first);
      const std::vector<StepMetrics> others = sources.metrics(folder);
      REQUIRE(others.size() == lines.size());
      for (size_t i = 0; i < lines.size(); ++i) {
        CHECK(by_name(others[i].file_losses) == by_name(lines[i].file_losses));
        CHECK(others[i].loss == lines[i].loss);
      }
    }
    int64_t before = 0;
    for (const StepMetrics& m : lines) {
      const std::map<std::string, double> losses = by_name(m.file_losses);
      double sum = 0;
      int64_t targets = 0;
      for (const auto& [name, count] : m.file_targets) {
        sum += losses.at(name) * static_cast<double>(count);
        targets += count;
      }
      CHECK(targets == m.tokens - before);
      CHECK(sum / static_cast<double>(targets) == doctest::Approx(m.loss).epsilon(1e-12));
      before = m.tokens;
    }
    CHECK(by_name(lines.back().file_losses).at("b") < by_name(lines.back().file_losses).at("corpus"));
  }
}

TEST_CASE("a micro-batch of several sequences gives each file its own loss") {
  const Sources sources("mixing_lanes");
  const std::string options = kTwo + kWeights + kEval;
  sources.run(1, options + "--run.dir=ones");
  sources.run(1, options + "--run.dir=fours --train.batch_size_per_device=4 --train.lane_size=4");
  const std::vector<StepMetrics> ones = sources.metrics("ones"), fours = sources.metrics("fours");
  REQUIRE(ones.size() == fours.size());
  for (const char* name : {"corpus", "b"})
    CHECK(by_name(fours[0].file_losses).at(name) ==
          doctest::Approx(by_name(ones[0].file_losses).at(name)).epsilon(1e-5));
}

TEST_CASE("a step has the share of every file, as its wrapped sequences tell") {
  const Sources sources("mixing_shares");
  sources.run(1, kTwo + kWeights + kEval + "--data.packing=wrapped --run.dir=run --train.steps=20");
  for (const StepMetrics& m : sources.metrics("run")) {
    if (m.tokens % (8 * 16) != 0) continue;  // the last step of an epoch is shorter
    CHECK(targets_of(m, "corpus") == 2 * 16);
    CHECK(targets_of(m, "b") == 6 * 16);
  }
}

TEST_CASE("a list of one file has the bits of the file") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const Sources sources("mixing_one");
  const std::string expected = hash_of(sources.run(1, "--run.dir=a"));
  CHECK(hash_of(sources.run(
            1, "--run.dir=b --data.train='[\"corpus.tok\"]' --data.eval='[\"corpus.tok\"]'")) == expected);
  CHECK(hash_of(sources.run(2, "--run.dir=c --data.train='{words = \"corpus.tok\"}' --data.weights='[3]'")) ==
        expected);
  CHECK(sources.metrics("c").back().file_losses.empty());
}

TEST_CASE("a run on several files resumes bit for bit, on other ranks too") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const Sources sources("mixing_resume");
  const std::string options = kTwo + kWeights + kEval + "--train.steps=24 ";
  const std::string expected =
      hash_of(sources.run(1, options + "--run.dir=whole --checkpoint.save_every=24"));
  sources.run(2, options + "--run.dir=saved --checkpoint.save_every=1");
  for (const int step : {1, 7, 13, 23}) {
    CAPTURE(step);
    const test::Finished resumed = sources.run(
        step == 7 ? 4 : 1, str(options, "--run.dir=resumed --overwrite --checkpoint.save_every=24 ",
                               "--resume saved/step-", step));
    CHECK(hash_of(resumed) == expected);
    CHECK(resumed.output.find(": data.") == std::string::npos);  // no change of data
    CHECK(test::checkpoint_content(sources.file("resumed/step-24")) ==
          test::checkpoint_content(sources.file("whole/step-24")));
  }
  const TrainState state = read_train_state(sources.file("saved/step-7/train_state.json"));
  REQUIRE(state.sources.size() == 2);
  CHECK(*state.data_fingerprint == state.sources[0].fingerprint + "; " + state.sources[1].fingerprint);
}

TEST_CASE("weights may change at a resume: the files continue, and the checkpoint records it") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const Sources sources("mixing_weights");
  const std::string options =
                        kTwo + kEval + "--data.packing=wrapped --train.steps=12 --checkpoint.save_every=3 ",
                    other = "--data.weights='[0.75, 0.25]' ";
  sources.run(1, options + kWeights + "--run.dir=a");
  const test::Finished changed =
      sources.run(2, options + other + "--overwrite --run.dir=b --resume a/step-6");
  CHECK(changed.output.find("changed since step 6: data.weights [0.25, 0.75] -> [0.75, 0.25]\n") !=
        std::string::npos);
  const test::Finished again = sources.run(1, options + other + "--overwrite --run.dir=c --resume b/step-9");
  CHECK(again.output.find("changed since") == std::string::npos);
  CHECK(hash_of(again) == hash_of(changed));
  CHECK(hash_of(changed) != hash_of(sources.run(1, options + kWeights + "--run.dir=d")));
  CHECK(test::checkpoint_content(sources.file("b/step-12")) ==
        test::checkpoint_content(sources.file("c/step-12")));
  CHECK(test::read_file(sources.file("c/config.toml"))
            .find("# changed since step 6: data.weights [0.25, 0.75] -> [0.75, 0.25]\n") !=
        std::string::npos);
  for (const StepMetrics& m : sources.metrics("b"))
    if (m.tokens % (8 * 16) == 0) CHECK(targets_of(m, "corpus") == (m.step <= 6 ? 2 : 6) * 16);
  const auto sequences = [&](const std::string& checkpoint, size_t source) {
    const SourcePosition at =
        read_train_state(sources.file(checkpoint + "/train_state.json")).sources[source].position;
    const int64_t count = (TokenFile(sources.file(source == 0 ? "corpus.tok" : "b.tok")).size() - 1) / 16;
    return at.epoch * count + at.sequence;
  };
  CHECK(sequences("a/step-6", 0) == 12);
  CHECK(sequences("a/step-6", 1) == 36);
  CHECK(sequences("b/step-9", 0) == 12 + 18);
  CHECK(sequences("b/step-9", 1) == 36 + 6);
}

TEST_CASE("a file that joins a run leaves the others where they are") {
  const Sources sources("mixing_files");
  const std::string options = kEval + "--data.packing=wrapped --checkpoint.save_every=3 ";
  sources.run(1, options + kTwo + kWeights + "--run.dir=a");
  const test::Finished joined = sources.run(
      1, options + "--data.train='[\"c.tok\", \"corpus.tok\", \"b.tok\"]' --run.dir=b --resume a/step-3");
  CHECK(joined.output.find("a file that was there before continues where it was") != std::string::npos);
  CHECK(joined.output.find("changed since step 3: data.train [\"corpus.tok\", \"b.tok\"] -> [\"c.tok\", "
                           "\"corpus.tok\", \"b.tok\"]\n") != std::string::npos);
  const TrainState before = read_train_state(sources.file("a/step-3/train_state.json")),
                   after = read_train_state(sources.file("b/step-6/train_state.json"));
  REQUIRE(after.sources.size() == 3);
  CHECK(after.sources[1].fingerprint == before.sources[0].fingerprint);
  CHECK(after.sources[1].position.sequence > before.sources[0].position.sequence);
  CHECK(after.sources[0].position.epoch == 0);
  sources.write("b.tok", 21, 10);  // other content under the same name is noticed in any file
  const test::Finished other = sources.run(1, options + kTwo + kWeights + "--run.dir=c --resume a/step-3");
  CHECK(other.output.find("changed since step 3: data.train \"") != std::string::npos);
}

TEST_CASE("wrong files and weights are refused with what to do") {
  const Sources sources("mixing_errors");
  CHECK(sources.error(kTwo + "--data.weights='[1, 2, 3]'") ==
        "train: --data.weights, --data.train: data.weights has 3 numbers, but data.train names 2 files: give "
        "one "
        "for each\n");
  CHECK(sources.error(kTwo + "--data.weights='[1, 0]'") ==
        "train: --data.weights: data.weights is 0, must be at least 1e-06\n");
  CHECK(sources.error(kTwo + "--data.weights='[1, \"b\"]'") ==
        "train: --data.weights: data.weights is a list, must be a number\n");
  CHECK(sources.error("--data.train='[\"b.tok\", \"b.tok\"]'").find("names \"b.tok\" twice: name it once") !=
        std::string::npos);
  CHECK(
      sources.error("--data.train='[\"b.tok\", \"none.tok\"]'").find("\"none.tok\", which does not exist") !=
      std::string::npos);
  CHECK(sources.error("--data.train='{\"a b\" = \"b.tok\"}'")
            .find("calls a file \"a b\": a name consists of letters, digits and the characters . _ - /") !=
        std::string::npos);
  CHECK(sources.error("--data.train='[1]'")
            .find("must be a file, a list of files, or a table such as {web = \"a.jsonl\"}") !=
        std::string::npos);
  CHECK(sources.error("--data.train='[]'").find("must name a file to train on") != std::string::npos);
  {
    TokenWriter writer(sources.file("wide.tok"), test::Workshop::kVocab - 1);
    writer.add_document(std::vector<int32_t>(40, 1));
    writer.finish();
  }
  CHECK(sources.error("--data.train='[\"b.tok\", \"wide.tok\"]'")
            .find("wide.tok has a vocabulary of 52, b.tok one of 53: make both with the same tokenizer") !=
        std::string::npos);
}

TEST_CASE("files are evaluated by themselves, and the mean of their losses decides on the best checkpoint") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const Sources sources("mixing_eval");
  const std::string options = "--train.steps=6 --train.eval_every=2 --checkpoint.best_every=1 ";
  const std::string hash = hash_of(sources.run(1, options + "--run.dir=corpus"));
  sources.run(1, options + "--run.dir=b --data.eval=b.tok");
  const std::string several = options + "--data.eval='{words = \"corpus.tok\", few = \"b.tok\"}' ";
  const test::Finished both = sources.run(1, several + "--run.dir=both");
  CHECK(hash_of(both) == hash);
  CHECK(hash_of(sources.run(2, several + "--run.dir=ranks")) == hash);
  const std::vector<StepMetrics> lines = sources.metrics("both"), of_corpus = sources.metrics("corpus"),
                                 of_b = sources.metrics("b"), of_ranks = sources.metrics("ranks");
  int evaluations = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    REQUIRE(lines[i].eval_loss.has_value() == of_corpus[i].eval_loss.has_value());
    if (!lines[i].eval_loss) continue;
    ++evaluations;
    const std::map<std::string, double> losses = by_name(lines[i].file_eval_losses);
    CHECK(losses.at("words") == *of_corpus[i].eval_loss);
    CHECK(losses.at("few") == *of_b[i].eval_loss);
    CHECK(*lines[i].eval_loss == (losses.at("words") + losses.at("few")) / 2);
    CHECK(by_name(of_ranks[i].file_eval_losses) == losses);
    CHECK(lines[i].file_eval_losses.front().name == "words");
  }
  CHECK(evaluations == 3);
  CHECK(both.output.find(", the mean of words ") != std::string::npos);
  const TrainState state = read_train_state(sources.file("both/step-6/train_state.json"));
  CHECK(state.eval_loss == lines.back().eval_loss);
  CHECK(test::read_file(sources.file("both/report.html")).find("Loss by file") != std::string::npos);
}
