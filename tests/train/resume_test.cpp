// Resuming from a checkpoint through the program train gives the bits of an uninterrupted run.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>

#include "checkpoint/checksums.h"
#include "checkpoint/tensor_difference.h"
#include "runtime/rng.h"
#include "tests/checkpoint_content.h"
#include "tests/job.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "text/data/token_file.h"
#include "train/report/metrics.h"
#include "train/save/shard_files.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr int kSteps = 20;  // with 8 of some 70 sequences in each, over two epochs' ends

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

std::string steps(int count) { return str(" --train.steps=", count, ' '); }

// A strategy on a number of ranks.
struct Spread {
  int ranks;
  std::string strategy;
  std::string options() const { return " --parallel.strategy=" + strategy + ' '; }
};
std::ostream& operator<<(std::ostream& out, const Spread& s) { return out << s.strategy << " x " << s.ranks; }

const std::vector<Spread>& spreads() {
  static const std::vector<Spread> all = [] {
    std::vector<Spread> made;
    for (const int ranks : {1, 2, 4})
      for (const char* strategy : {"no_shard", "shard_grad_op", "full_shard"})
        made.push_back({ranks, strategy});
    return made;
  }();
  return all;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Of two files of metrics.
void check_same_losses(const std::string& a, const std::string& b) {
  const std::vector<StepMetrics> left = read_metrics(a), right = read_metrics(b);
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    CHECK(left[i].step == right[i].step);
    CHECK(left[i].loss == right[i].loss);
    CHECK(left[i].grad_norm == right[i].grad_norm);
    CHECK(left[i].tokens == right[i].tokens);
    CHECK(left[i].loss_scale == right[i].loss_scale);
  }
}

// Every other spread writes a checkpoint of every step; a run with another spread resumes from one of them.
// Both end like an uninterrupted run on one rank: weights, moments, state and metrics.
void check_every_other(const std::string& folder, const std::string& precision) {
  const test::Workshop workshop(folder);
  const std::string options = " --precision.compute=" + precision + steps(kSteps);
  const test::Finished whole =
      workshop.train(1, options + "--run.dir=whole --checkpoint.save_every=" + str(kSteps));
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const std::string last = str("/step-", kSteps),
                    at_end = test::checkpoint_content(workshop.file("whole") + last);
  int split = 2;
  for (size_t w = 1; w < spreads().size(); w += 2) {
    const Spread& writer = spreads()[w];
    const std::string from = str("from", w);
    const test::Finished written = workshop.train(
        writer.ranks, options + writer.options() + "--run.dir=" + from + " --checkpoint.save_every=1");
    CAPTURE(writer);
    CHECK_MESSAGE(hash_of(written) == hash_of(whole), written.output);
    CHECK(test::checkpoint_content(workshop.file(from) + last) == at_end);
    const size_t r = (w + 4) % spreads().size();
    const Spread& reader = spreads()[r];
    const std::string to = str("to", r);
    const test::Finished read = workshop.train(
        reader.ranks, options + reader.options() + "--run.dir=" + to + " --checkpoint.save_every=" +
                          str(kSteps) + " --resume " + from + "/step-" + str(split) +
                          (split % 2 ? " --parallel.backward_prefetch=none" : " --train.recompute=true"));
    CAPTURE(reader);
    CAPTURE(split);
    CHECK_MESSAGE(hash_of(read) == hash_of(whole), read.output);
    REQUIRE(fs::exists(workshop.file(to) + last));
    CHECK(test::checkpoint_content(workshop.file(to) + last) == at_end);
    check_same_losses(workshop.file("whole/metrics.jsonl"), workshop.file(to + "/metrics.jsonl"));
    split = (split + 7) % (kSteps - 1) + 1;
  }
}

}  // namespace

TEST_CASE("a run resumes bit for bit on any number of ranks under any strategy") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  std::string hash;
  for (const int ranks : {1, 2, 4}) {
    const test::Finished run =
        test::run_command(test::launcher(ranks) + "@resume_matrix --write resume_matrix", 300);
    CHECK_MESSAGE(run.exit_code == 0, run.output);
    const std::string weights = test::after(run.output, "weights ");
    if (hash.empty()) hash = weights;
    CHECK(weights == hash);
  }
  REQUIRE(hash.size() == 64);
  for (const int ranks : {1, 2, 4}) {
    const test::Finished run =
        test::run_command(test::launcher(ranks) + "@resume_matrix --resume resume_matrix " + hash, 300);
    CAPTURE(run.output);
    CHECK(run.exit_code == 0);
    CHECK(run.output.find("9 runs went on, from 9 that wrote; 0 differ") != std::string::npos);
  }
}

TEST_CASE("an fp16 run resumes bit for bit, including loss scale, moments and metrics") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  check_every_other("resume_fp16", "fp16");
}

TEST_CASE("runs with offload, hybrid sharding, frozen parameters and other units resume bit for bit") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("resume_other");
  const std::string options =
      " --checkpoint.save_every=5 --model.trainable='[\"model.layers.1.*\", \"lm_head*\"]'" + steps(kSteps);
  const std::string hybrid =
      " --parallel.strategy=hybrid --parallel.group_size=2 --parallel.wrap=attention_mlp";
  const test::Finished whole = workshop.train(4, options + "--run.dir=whole" + hybrid);
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const test::Finished offloaded =
      workshop.train(2, options +
                            "--run.dir=two --parallel.offload=true --resume whole/step-10 "
                            "--parallel.wrap=attention_mlp");
  CHECK_MESSAGE(hash_of(offloaded) == hash_of(whole), offloaded.output);
  CHECK(offloaded.output.find("parallel.strategy \"hybrid\" -> \"full_shard\"") != std::string::npos);
  const test::Finished back = workshop.train(4, options + "--run.dir=four --resume two/step-15" + hybrid);
  CHECK_MESSAGE(hash_of(back) == hash_of(whole), back.output);
  CHECK(test::checkpoint_content(workshop.file("four/step-20")) ==
        test::checkpoint_content(workshop.file("whole/step-20")));
}

TEST_CASE("runs of every optimizer resume bit for bit on other ranks and strategies, paged or not") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const OptimizerKind& kind : optimizer_kinds().subspan(1)) {  // other tests resume with the default
    CAPTURE(kind.name);
    const test::Workshop workshop(str("resume_", kind.name));
    // With this size shards end inside of parameters.
    const std::string options =
        " --model.hidden=40 --optimizer.lr=1e-3 --checkpoint.save_every=5" + steps(15);
    const std::string unpaged = str(options, "--optimizer.kind=", kind.name, ' '),
                      paged = str(options, "--optimizer.kind=", name_of({&kind, true}), ' ');
    const test::Finished whole = workshop.train(1, unpaged + "--run.dir=whole");
    REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
    for (const char* set : state_sets())
      CHECK(fs::exists(workshop.file(str("whole/step-15/", set, ".safetensors"))) ==
            std::ranges::any_of(kind.sets(), [&](std::string_view own) { return own == set; }));
    const auto check_same = [&](const test::Finished& run, const std::string& folder) {
      CHECK_MESSAGE(hash_of(run) == hash_of(whole), run.output);
      for (const char* step : {"/step-10", "/step-15"})
        CHECK(test::checkpoint_content(workshop.file(folder) + step) ==
              test::checkpoint_content(workshop.file("whole") + step));
    };
    check_same(
        workshop.train(4, unpaged + "--run.dir=four --parallel.strategy=hybrid --parallel.group_size=2"),
        "four");
    check_same(workshop.train(2, paged + "--run.dir=two --resume four/step-5"), "two");
    check_same(workshop.train(1, unpaged + "--run.dir=one --parallel.offload=true --resume four/step-5"),
               "one");
    const test::Finished other =
        workshop.train(1, options + "--optimizer.kind=adamw --run.dir=on --resume whole/step-15");
    CHECK(other.exit_code == 1);
    CHECK_MESSAGE(
        other.output.find(str("optimizer.kind is \"adamw\", the checkpoint was made with \"", kind.name,
                              "\", whose moments it has in another form: restore it, or start a "
                              "new run")) != std::string::npos,
        other.output);
  }
}

TEST_CASE("a checkpoint of 8-bit moments has codes and scales, and resumes only in the same units") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("resume_8bit");
  const std::string options =
      " --model.hidden=40 --optimizer.kind=adamw8bit --checkpoint.save_every=5" + steps(5);
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const TensorFolder moments(workshop.file("whole/step-5"), "exp_avg");
  const auto dtype_of_tensor = [&](const std::string& name) {
    const SafetensorsEntry* const entry = moments.find(name);
    return entry ? str(entry->dtype, ' ', in_brackets(entry->shape)) : "";
  };
  CHECK(dtype_of_tensor("model.layers.0.mlp.down_proj.weight") == "U8 [40, 40]");
  CHECK(dtype_of_tensor("model.layers.0.mlp.down_proj.weight.absmax") == "F32 [7]");
  CHECK(dtype_of_tensor("lm_head.weight") == "F32 [53, 40]");  // in a unit of few elements

  const test::Finished other =
      workshop.train(1, options + "--parallel.wrap=none --run.dir=on --resume whole/step-5");
  CHECK(other.exit_code == 1);
  CHECK_MESSAGE(other.output.find("restore parallel.wrap as it was") != std::string::npos, other.output);
}

TEST_CASE("runs resume bit for bit from any division of a checkpoint into files") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("resume_cut");
  const std::string options = " --checkpoint.save_every=5" + steps(10);
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const test::Finished cut = workshop.train(4, options + "--run.dir=cut --checkpoint.shard_size=10KB");
  CHECK_MESSAGE(hash_of(cut) == hash_of(whole), cut.output);
  for (const char* stem : stems_in(workshop.file("whole/step-10"))) {
    const TensorFolder one(workshop.file("whole/step-10"), stem), several(workshop.file("cut/step-10"), stem);
    CHECK(one.files().size() == 1);
    CHECK(several.files().size() > 3);
    REQUIRE(one.entries().size() == several.entries().size());
    for (const auto& [name, entry] : one.entries()) CHECK(same_bits(*entry, *several.find(name)));
  }
  CHECK(TensorFolder(workshop.file("cut/model"), "model").files().size() > 3);
  const test::Finished joined = workshop.train(2, options + "--run.dir=joined --resume cut/step-5");
  CHECK_MESSAGE(hash_of(joined) == hash_of(whole), joined.output);
  CHECK(test::checkpoint_content(workshop.file("joined/step-10")) ==
        test::checkpoint_content(workshop.file("whole/step-10")));
  const test::Finished cut_again =
      workshop.train(2, options + "--run.dir=again --resume whole/step-5 --checkpoint.shard_size=10KB");
  CHECK_MESSAGE(hash_of(cut_again) == hash_of(whole), cut_again.output);
  CHECK(test::checkpoint_content(workshop.file("again/step-10")) ==
        test::checkpoint_content(workshop.file("cut/step-10")));

  // A file that the index names, and the checksums do not.
  const std::string sums = workshop.file("cut/step-10/checksums"), text = test::read_file(sums);
  const size_t name = text.find("exp_avg-00002-of-"), begin = text.rfind('\n', name) + 1;
  write_file(sums, text.substr(0, begin) + text.substr(text.find('\n', name) + 1));
  const std::string refused = workshop.train(1, "--run.dir=other --resume cut/step-10").output;
  CHECK_MESSAGE(refused.find("cut/step-10/checksums: has no line for exp_avg-00002-of-") != std::string::npos,
                refused);
}

TEST_CASE("a run stopped by a signal resumes in its own folder and metrics") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("resume_signal");
  const std::string options = " --schedule.kind=constant --train.eval_every=1000 --log.every=1000";
  test::Job job("resume_signal", "-np 2 @train config.toml --train.steps=1000000" + options);
  const std::vector<pid_t> pids = job.ranks_after("memory    of rank 0", 2);
  kill(pids[1], SIGTERM);
  const test::Finished stopped = job.wait();
  CAPTURE(stopped.output);
  REQUIRE(stopped.exit_code == 0);
  const std::string saved = test::after(stopped.output, "saved     runs/default/step-");
  REQUIRE(!saved.empty());
  const int step = std::stoi(saved);
  const test::Finished on = workshop.train(4, options + steps(step + 5) + "--resume latest");
  const test::Finished whole = workshop.train(1, options + steps(step + 5) + "--run.dir=whole");
  CHECK_MESSAGE(hash_of(on) == hash_of(whole), on.output);
  CHECK(hash_of(on).size() == 64);
  check_same_losses(workshop.file("whole/metrics.jsonl"), workshop.file("runs/default/metrics.jsonl"));
}

TEST_CASE("a checkpoint moved to another folder carries the training history") {
  const test::Workshop workshop("resume_alone");
  const std::string options = " --checkpoint.save_every=4" + steps(10);
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const std::string moved = workshop.file("elsewhere/renamed");
  fs::create_directories(moved);
  fs::rename(workshop.file("whole/step-8"), moved);
  const auto go_on = [&](const std::string& folder) {
    const test::Finished on = workshop.train(1, options + "--resume elsewhere/renamed --run.dir=" + folder);
    CHECK_MESSAGE(hash_of(on) == hash_of(whole), on.output);
    check_same_losses(workshop.file("whole/metrics.jsonl"), workshop.file(folder + "/metrics.jsonl"));
    return on.output;
  };
  go_on("alone");
  // The files beside it may belong to another run.
  std::string other = test::read_file(workshop.file("whole/metrics.jsonl"));
  other.replace(other.find("\"loss\":"), 7, "\"loss\":1");
  write_file(workshop.file("elsewhere/metrics.jsonl"), other);
  CHECK(go_on("beside").find("elsewhere/metrics.jsonl: step 1 differs from the checkpoint's history") !=
        std::string::npos);
}

TEST_CASE("a damaged checkpoint, or one of another run, is refused on one line that names it") {
  const test::Workshop workshop("resume_damage");
  const test::Finished made = workshop.train(1, "--run.dir=run --checkpoint.save_every=3");
  REQUIRE_MESSAGE(made.exit_code == 0, made.output);
  const std::string folder = workshop.file("run/step-3");
  const auto state_bytes = fs::file_size(workshop.file("run/step-6/train_state.json"));
  const auto refused = [&](const std::string& options, const std::string& message) {
    CAPTURE(options);
    const test::Finished run = workshop.train(1, "--run.dir=run --resume run/step-3 " + options);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    const size_t last = run.output.rfind("train: ");
    REQUIRE(last != std::string::npos);
    CHECK(std::count(run.output.begin() + static_cast<int64_t>(last), run.output.end(), '\n') == 1);
    CHECK(run.output.find(message, last) != std::string::npos);
  };
  refused("--model.hidden=32",
          "run/step-3: cannot resume from it: model.hidden is 32, the checkpoint was made with 24");
  refused("--optimizer.eps=0.5",
          "optimizer.eps is 0.5, the checkpoint was made with 1e-08, which its moments depend on");
  refused("--train.steps=2", "it is at step 3, the run has 2");
  for (const char* stem : stems_in(folder)) {
    const std::string name = str(stem, ".safetensors"), path = folder + "/" + name,
                      good = test::read_file(path);
    std::string bad = good;
    bad[bad.size() - 7] ^= 1;
    write_file(path, bad);
    refused("", str("run/step-3/", name, ": damaged between byte 0 and byte ", good.size()));
    bad = good;
    bad[20] ^= 1;  // in the header, which is checked first
    write_file(path, bad);
    refused("", str("run/step-3/", name, ": damaged between byte 0 and byte ", good.size()));
    write_file(path, good.substr(0, good.size() - 1));
    refused("",
            str("run/step-3/", name, ": has ", good.size() - 1, " bytes, was written with ", good.size()));
    fs::remove(path);
    refused("", str("run/step-3/", name, ": cannot open"));
    write_file(path, good);
  }
  const std::string sums = test::read_file(folder + "/checksums");
  write_file(folder + "/checksums", sums.substr(0, sums.rfind(' ')));
  refused("", "run/step-3/checksums:5: the line is cut off");
  write_file(folder + "/checksums", sums.substr(0, sums.rfind('\n', sums.size() - 2) + 1));
  refused("", "run/step-3/checksums: has no line for train_state.json");

  // Complete files with wrong content but correct checksums.
  const auto replace = [&](const std::string& name, const std::string& text) {
    write_file(folder + "/" + name, text);
    Checksums all = Checksums::read(workshop.file("run/step-6"));
    for (const auto& [each, ignored] : all.files())
      all.add(each, std::string_view(test::read_file(folder + "/" + each)));
    write_file(folder + "/checksums", all.text());
  };
  const std::string moments = test::read_file(folder + "/exp_avg.safetensors");
  std::string renamed = moments;
  renamed.replace(renamed.find("lm_head.weight"), 14, "lm_hexd.weight");
  replace("exp_avg.safetensors", renamed);
  {
    const test::Finished run = workshop.train(1, "--run.dir=run --resume run/step-3");
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find("run/step-3/exp_avg.safetensors: lm_head.weight is missing; the model expects it "
                          "with the shape [53, 24]") != std::string::npos);
  }
  replace("exp_avg.safetensors", moments);
  const std::string state = test::read_file(folder + "/train_state.json");
  fs::resize_file(workshop.file("run/step-6/train_state.json"), 7);
  CHECK(workshop.train(1, "--run.dir=run --resume latest").output ==
        str("train: run/step-6/train_state.json: has 7 bytes, was written with ", state_bytes,
            "; the newest older checkpoint is run/step-3: resume from it\n"));
  CHECK(workshop.train(1, "--run.dir=on --resume run/model").output ==
        "train: run/model: is a model folder, not a checkpoint: start a new run from it with "
        "model.init_from\n");
  replace("train_state.json", state.substr(0, state.size() / 2));
  refused("", "run/step-3/train_state.json: invalid JSON: ");
  replace("train_state.json", state);
  const test::Finished good =
      workshop.train(1, "--run.dir=run --resume run/step-3 --checkpoint.save_every=3");
  CHECK_MESSAGE(hash_of(good) == hash_of(made), good.output);
}

TEST_CASE("the oldest checkpoints are removed, the best and the newest are kept") {
  const test::Workshop workshop("resume_keep");
  // Random tokens that are not in the corpus: the more the model learns, the higher their loss.
  TokenWriter writer(workshop.file("other.tok"), test::Workshop::kVocab);
  const RandomStream random(2, "other");
  std::vector<int32_t> tokens(200);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(random.bits(static_cast<int64_t>(i)) % test::Workshop::kVocab);
  writer.add_document(tokens);
  writer.finish();
  const test::Finished run = workshop.train(
      1,
      "--run.dir=run --checkpoint.save_every=0.1 --checkpoint.keep=2 --data.eval=other.tok" + steps(kSteps));
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  int64_t best = 0;
  double least = 1e300;
  for (const StepMetrics& m : read_metrics(workshop.file("run/metrics.jsonl")))
    if (m.eval_loss && m.step % 2 == 0 && *m.eval_loss < least) best = m.step, least = *m.eval_loss;
  REQUIRE(best < 18);  // or the test proves nothing
  const std::set<std::string> expected{"step-20", str("step-", best)};
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(workshop.file("run")))
    if (const std::string name = entry.path().filename().string(); name.starts_with("step-"))
      found.insert(name);
  CHECK(found == expected);
  CHECK(test::read_file(workshop.file("run/latest")) == "step-20\n");
}

TEST_CASE("checkpoints of an abandoned history are removed first") {
  const test::Workshop workshop("resume_given_up");
  const auto run = [&](const std::string& options) {
    const test::Finished ran =
        workshop.train(1, "--run.dir=run --schedule.kind=constant --train.eval_every=1000 " + options);
    REQUIRE_MESSAGE(ran.exit_code == 0, ran.output);
  };
  run("--checkpoint.save_every=4" + steps(8));
  run("--checkpoint.save_every=2 --resume run/step-4 --checkpoint.keep=2" + steps(6));
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(workshop.file("run")))
    if (const std::string name = entry.path().filename().string(); name.starts_with("step-"))
      found.insert(name);
  const std::set<std::string> expected{"step-4", "step-6"};
  CHECK(found == expected);
  CHECK(test::read_file(workshop.file("run/latest")) == "step-6\n");
}

TEST_CASE("checkpoints are evaluated even without scheduled evaluations, unless there are to be none") {
  const test::Workshop workshop("resume_evaluated");
  // The number of evaluations.
  const auto evaluated = [&](const std::string& options) {
    const test::Finished run = workshop.train(1, "--run.dir=run " + options);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    int64_t count = 0;
    for (const StepMetrics& m : read_metrics(workshop.file("run/metrics.jsonl"))) {
      count += m.eval_loss ? 1 : 0;
      if (m.eval_loss) CHECK((m.step == 4 || m.step == 6));
    }
    return count;
  };
  CHECK(evaluated("--train.eval_every=1000 --checkpoint.save_every=4") == 2);
  for (const char* saves : {"4", "30min", "0"})
    CHECK_MESSAGE(evaluated(str("--train.eval_every=0 --checkpoint.save_every=", saves)) == 0, saves);
}

TEST_CASE(
    "a new run does not mix with the checkpoints of an earlier one, and half-written ones are removed") {
  const test::Workshop workshop("resume_mix");
  CHECK(workshop.train(1, "--resume latest").output == "train: runs/default: has no checkpoint\n");
  const test::Finished made = workshop.train(1, "--checkpoint.save_every=3");
  REQUIRE_MESSAGE(made.exit_code == 0, made.output);
  CHECK(test::run_command("cd resume_mix && @train config.toml").output ==
        "train: runs/default: contains checkpoints of an earlier run, up to step-6: continue it with "
        "--resume latest, choose another run.dir, or replace it with --overwrite\n");
  fs::create_directories(workshop.file("runs/default/step-9.tmp"));
  write_file(workshop.file("runs/default/step-9.tmp/model.safetensors"), "half");
  write_file(workshop.file("runs/default/latest"), "step-3\n");
  const test::Finished on = workshop.train(1, "--resume latest --checkpoint.save_every=3");
  CAPTURE(on.output);
  CHECK(hash_of(on) == hash_of(made));
  CHECK(on.output.find("runs/default/step-9.tmp: removed this unfinished checkpoint") != std::string::npos);
  CHECK(on.output.find("runs/default/step-6: is newer than the checkpoint resumed from") !=
        std::string::npos);
  CHECK(!fs::exists(workshop.file("runs/default/step-9.tmp")));
  CHECK(test::read_file(workshop.file("runs/default/latest")) == "step-6\n");
  write_file(workshop.file("runs/default/latest"), "../step-3\n");
  CHECK(workshop.train(1, "--resume latest").output.find("latest: names \"../step-3\", which is not") !=
        std::string::npos);
}
