// Every kind of bad input to the program train: one line that names the cause, exit code 1, no partial files.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/checked_file.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kHeaderBytes = 48, kTokenBytes = 2;  // of the workshop's token file

// The number of lines that begin with "train: ".
int64_t complaints(const std::string& output) {
  int64_t count = output.starts_with("train: ");
  for (size_t at = 0; (at = output.find("\ntrain: ", at)) != std::string::npos; ++at) ++count;
  return count;
}

// The program fails before it prints or writes anything.
void check_refused(const test::Workshop& workshop, const std::string& options, const std::string& message) {
  CAPTURE(options);
  const test::Finished run = workshop.train(1, options);
  CHECK(run.exit_code == 1);
  CHECK(run.output == "train: " + message + "\n");
  CHECK(!fs::exists(workshop.file("runs")));
}

// The program fails after it has printed its header.
void check_stopped(const test::Workshop& workshop, const std::string& options, const std::string& message) {
  CAPTURE(options);
  const test::Finished run = workshop.train(1, options);
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(complaints(run.output) == 1);
  CHECK(run.output.ends_with("\ntrain: " + message + "\n"));
  for (const auto& entry : fs::recursive_directory_iterator(workshop.file(".")))
    CHECK_MESSAGE(entry.path().extension() != ".tmp", entry.path());
}

// On two ranks: all ranks end, and the line is printed at least once and at most once per rank.
void check_all_end(const test::Workshop& workshop, const std::string& options, const std::string& message) {
  CAPTURE(options);
  const test::Finished run = workshop.train(2, options, 60);
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(complaints(run.output) >= 1);
  CHECK(complaints(run.output) <= 2);
  CHECK(run.output.find(message) != std::string::npos);
}

// The size of the workshop's corpus without the checksums at its end.
uintmax_t content_of_corpus(const test::Workshop& workshop) {
  return static_cast<uintmax_t>(content_bytes(InputFile(workshop.file("corpus.tok"))));
}

// The workshop's corpus, cut off after so many bytes.
void write_cut(const test::Workshop& workshop, const std::string& name, uintmax_t bytes) {
  fs::copy_file(workshop.file("corpus.tok"), workshop.file(name), fs::copy_options::overwrite_existing);
  fs::resize_file(workshop.file(name), bytes);
}

// The workshop's corpus with another token at some positions, and without checksums, which would not fit.
void write_with_token(const test::Workshop& workshop, const std::string& name,
                      const std::vector<int64_t>& positions, uint16_t token) {
  write_cut(workshop, name, content_of_corpus(workshop));
  std::fstream file(workshop.file(name), std::ios::in | std::ios::out | std::ios::binary);
  for (const int64_t position : positions) {
    file.seekp(kHeaderBytes + position * kTokenBytes);
    file.put(static_cast<char>(token & 0xff)).put(static_cast<char>(token >> 8));
  }
}

std::vector<int64_t> every_position(const test::Workshop& workshop) {
  const int64_t tokens = 60 * (5 + 12 + 19 + 26 + 33) / 5;
  CHECK(fs::file_size(workshop.file("corpus.tok")) >
        static_cast<uintmax_t>(kHeaderBytes + kTokenBytes * tokens));
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < tokens; ++i) positions.push_back(i);
  return positions;
}

}  // namespace

TEST_CASE("an unknown key or section is refused with the nearest known one") {
  const test::Workshop workshop("unknown_keys");
  check_refused(workshop, "--train.step=1",
                "--train.step: unknown key train.step; the nearest known one is train.steps");
  std::ofstream(workshop.file("config.toml"), std::ios::app) << "[optimiser]\n";
  check_refused(workshop, "",
                "config.toml:29: unknown section [optimiser]; the nearest known one is [optimizer]");
}

TEST_CASE("a value of the wrong type is refused with the type it must have") {
  const test::Workshop workshop("wrong_types");
  check_refused(workshop, "--train.steps=ten",
                "--train.steps: train.steps is the string \"ten\", must be a whole number");
  check_refused(workshop, "--model.tied=1",
                "--model.tied: model.tied is a whole number, must be true or false");
  check_refused(workshop, "--optimizer.betas=[0.9]",
                "--optimizer.betas: optimizer.betas is a list, must be a list of two numbers");
  check_refused(workshop, "--precision.compute=fp8",
                "--precision.compute: precision.compute is \"fp8\", must be one of bf16, fp16, fp32");
}

TEST_CASE("an impossible combination is refused with the keys that disagree") {
  const test::Workshop workshop("impossible");
  check_refused(workshop, "--model.heads=7",
                "--model.heads, config.toml:6: model.heads = 7 does not divide model.hidden = 24; change one "
                "of them or "
                "set model.head_dim");
  check_refused(
      workshop, "--model.max_positions=8",
      "config.toml:13, --model.max_positions: data.seq_len = 16 is longer than model.max_positions = 8");
  check_refused(
      workshop, "--train.epochs=1 --train.steps=6",
      "--train.steps, --train.epochs: train.steps = 6 and train.epochs = 1: set exactly one of them above 0");
  check_refused(workshop, "--schedule.warmup_steps=1 --schedule.warmup_ratio=0.5",
                "--schedule.warmup_steps, --schedule.warmup_ratio: schedule.warmup_steps = 1 and "
                "schedule.warmup_ratio = 0.5: set only one of them");
}

TEST_CASE("all mistakes of a config are reported at once, each with its lines or arguments") {
  const test::Workshop workshop("many_mistakes");
  std::ofstream(workshop.file("config.toml"), std::ios::app) << "[train]\nmax_steps = 5\n";
  const test::Finished toml = workshop.train(1, "--optimizer.lr fast");
  CHECK(toml.exit_code == 1);
  CHECK(toml.output ==
        "train: 2 problems:\n"
        "  config.toml:29: Error while parsing table header: cannot redefine existing table 'train'\n"
        "  --optimizer.lr: optimizer.lr is the string \"fast\", must be a number\n");
  std::ofstream(workshop.file("config.toml"))
      << "train.stps = 6\nrun.trase = true\n[data]\nseq_length = 16\ntrain = \"corpus.tok\"\n[model]\n"
         "layers = 2\nhidden = 24\nheads = 7\nvocab = 53\n[schedule]\nwarmup_ratio = 2.0\n";
  const test::Finished many = workshop.train(1,
                                             "--train.total_batch_size 3 --train.batch_size_per_device -2 "
                                             "--precision.tf32 true --optimizer.lr -1e-3 --learning_rate 1");
  CHECK(many.exit_code == 1);
  CHECK(many.output ==
        "train: 9 problems:\n"
        "  --learning_rate: unknown key learning_rate; use optimizer.lr (peak learning rate)\n"
        "  config.toml:1: unknown key train.stps; the nearest known one is train.steps\n"
        "  config.toml:2: unknown key run.trase; the nearest known one is run.trace\n"
        "  config.toml:4: unknown key data.seq_length; use data.seq_len (tokens per sequence)\n"
        "  config.toml:12: schedule.warmup_ratio is 2, must be at most 1\n"
        "  --train.batch_size_per_device: train.batch_size_per_device is -2, must be at least 1\n"
        "  --optimizer.lr: optimizer.lr is -0.001, must be at least 0\n"
        "  --precision.tf32: precision.tf32 = true applies to fp32 matrix products, but precision.compute is "
        "\"bf16\": remove one of them\n"
        "  config.toml:9, config.toml:8: model.heads = 7 does not divide model.hidden = 24; change one of "
        "them or set model.head_dim\n");
  CHECK(!fs::exists(workshop.file("runs")));
}

TEST_CASE("an invalid shard size, or one that makes too many files, is refused before training") {
  const test::Workshop workshop("file_sizes");
  for (const std::string size : {"0", "-1GB", "5gb", "5 GB", "GB", "1e9", "9999999999TB", "5GB5"})
    check_refused(workshop, "--checkpoint.shard_size='\"" + size + "\"'",
                  "--checkpoint.shard_size: checkpoint.shard_size is \"" + size +
                      "\", must be a positive number of B, KB, MB, GB or TB (powers of 1000), or of KiB, "
                      "MiB, GiB or TiB, such as 5GB");
  check_stopped(workshop, "--checkpoint.shard_size='\"1B\"' --model.layers=40",
                "checkpoint.shard_size: model: splitting the tensors at 1 bytes makes 363 files, must be at "
                "most 300: raise the file size");
}

TEST_CASE("out-of-range sizes are refused at once, also by --plan") {
  const test::Workshop workshop("too_large");
  const std::string at_most = ", must be at most ";
  for (const std::string plan : {"", " --plan"}) {
    check_refused(workshop, "--train.total_batch_size=1000000000000" + plan,
                  "--train.total_batch_size: train.total_batch_size is 1000000000000" + at_most + "262144");
    check_refused(workshop, "--model.layers=2147483648" + plan,
                  "--model.layers: model.layers is 2147483648" + at_most + "4096");
    check_refused(workshop, "--model.vocab=9223372036854775807" + plan,
                  "--model.vocab: model.vocab is 9223372036854775807" + at_most + "2147483647");
    check_refused(workshop, "--run.threads=4096" + plan,
                  "--run.threads: run.threads is 4096" + at_most + "1024");
    check_refused(workshop, "--data.seq_len=1000000000 --train.batch_size_per_device=8" + plan,
                  "--data.seq_len, --train.batch_size_per_device: data.seq_len = 1000000000 times "
                  "train.batch_size_per_device = 8 is 8000000000 tokens" +
                      at_most + "1073740800");
    check_refused(
        workshop,
        "--train.total_batch_size=65536 --train.batch_size_per_device=65536 --train.lane_size=1" + plan,
        "--train.batch_size_per_device, config.toml:5, --train.lane_size: train.batch_size_per_device = "
        "65536 in 65536 lanes, times model.layers = 2, is 131072 "
        "blocks" +
            at_most + "65536: raise train.lane_size");
  }
  check_refused(workshop, "--train.steps=0 --train.epochs=1e300",
                "train.epochs = 1e+300 is 9e+300 steps, must be at most 1e+12");
}

TEST_CASE("a run that exceeds memory is refused before it allocates, but can be planned") {
  const test::Workshop workshop("no_memory");
  for (const std::string options : {"--model.hidden=1000000", "--model.layers=256 --model.ffn=4000000"}) {
    CAPTURE(options);
    const test::Finished run = workshop.train(1, options);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.starts_with("train: out of host memory: the run needs "));
    CHECK(run.output.find(" TiB, but only ") != std::string::npos);
    CHECK(std::count(run.output.begin(), run.output.end(), '\n') == 1);
    CHECK(!fs::exists(workshop.file("runs")));
    const test::Finished plan = workshop.train(1, options + " --plan");
    CHECK(plan.exit_code == 0);
    CHECK(plan.output.find(" TiB\n") != std::string::npos);
  }
}

TEST_CASE("a missing, empty, truncated or foreign data file is refused") {
  const test::Workshop workshop("bad_files");
  const uintmax_t bytes = content_of_corpus(workshop);
  write_cut(workshop, "empty.tok", 0);
  write_cut(workshop, "short.tok", bytes - 8);
  write_cut(workshop, "header.tok", kHeaderBytes);
  for (const std::string key : {"--data.train=", "--data.eval="}) {
    const std::string name = key.substr(2, key.size() - 3);
    check_refused(
        workshop, key + "missing.tok",
        str("--", name, ": ", name, " is \"missing.tok\", which does not exist; relative paths start in ",
            fs::canonical(workshop.file(".")).string(), ": correct the path, or start train elsewhere"));
    check_refused(workshop, key + ".", ".: not a regular file");
    check_refused(workshop, key + "empty.tok", "empty.tok: is not a token file: make one with prepare");
    check_refused(workshop, key + "config.toml", "config.toml: is not a token file: make one with prepare");
    check_refused(
        workshop, key + "short.tok",
        str("short.tok: has ", bytes - 8, " bytes, must have ", bytes, ": it is cut off or damaged"));
    check_refused(workshop, key + "header.tok",
                  "header.tok: its header says 1140 tokens in 60 documents, but the file has only 48 bytes: "
                  "it is cut off or damaged");
  }
  REQUIRE(test::run_command("mkfifo bad_files/pipe").exit_code == 0);
  check_refused(workshop, "--data.train=pipe", "pipe: not a regular file");
}

TEST_CASE("a run folder that cannot be created or written stops the run before its first step") {
  const test::Workshop workshop("bad_folders");
  check_refused(workshop, "--run.dir=corpus.tok", "corpus.tok: is not a folder: choose another run.dir");
  check_refused(workshop, "--run.dir=corpus.tok/run",
                "corpus.tok/run: cannot create this folder: Not a directory");
  check_refused(workshop, "--run.dir=" + std::string(300, 'l'),
                std::string(300, 'l') + ": cannot create this folder: File name too long");
  fs::create_symlink("nowhere", workshop.file("link"));
  check_refused(workshop, "--run.dir=link",
                "link: links to a folder that does not exist: create that folder, or remove the link");
  check_refused(workshop, "--run.dir=", "--run.dir: run.dir is empty, must name a folder");
}

TEST_CASE("a truncated data file ends all ranks") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("bad_files_of_ranks");
  const uintmax_t bytes = content_of_corpus(workshop);
  write_cut(workshop, "short.tok", bytes - 8);
  for (const std::string key : {"--data.train=", "--data.eval="})
    check_all_end(
        workshop, key + "short.tok",
        str("] short.tok: has ", bytes - 8, " bytes, must have ", bytes, ": it is cut off or damaged"));
  CHECK(!fs::exists(workshop.file("runs")));
}

TEST_CASE("a token outside the vocabulary stops the run with its position, value and bound") {
  const test::Workshop workshop("odd_tokens");
  write_with_token(workshop, "first.tok", {0}, 53);
  write_with_token(workshop, "late.tok", {900}, 65535);
  const std::string in_order = "--data.shuffle=false --train.steps=9 --data.";
  check_stopped(workshop, in_order + "train=first.tok",
                "first.tok: token 53 at 0 is outside the vocabulary of 53");
  check_stopped(workshop, in_order + "train=late.tok",
                "late.tok: token 65535 at 900 is outside the vocabulary of 53");
  check_stopped(workshop, in_order + "eval=late.tok",
                "late.tok: token 65535 at 900 is outside the vocabulary of 53");
}

TEST_CASE("a token outside the vocabulary ends all ranks, whichever of them reads it") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("odd_tokens_of_ranks");
  // Lanes of one sequence: the first belongs to rank 0 and the second to rank 1.
  write_with_token(workshop, "rank0.tok", {3}, 60);
  write_with_token(workshop, "rank1.tok", {20}, 60);
  write_with_token(workshop, "both.tok", every_position(workshop), 60);
  const std::string options = "--data.shuffle=false --data.train=";
  check_all_end(workshop, options + "rank0.tok",
                "[rank 0] rank0.tok: token 60 at 3 is outside the vocabulary of 53");
  check_all_end(workshop, options + "rank1.tok",
                "[rank 1] rank1.tok: token 60 at 20 is outside the vocabulary of 53");
  check_all_end(workshop, options + "both.tok", "both.tok: token 60 at ");
}

TEST_CASE("a run without data.train is refused with the remedy") {
  const test::Workshop workshop("no_data");
  check_refused(workshop, "--data.train=",
                "--data.train: data.train is \"\", must name a file to train on: tokens made by prepare, or "
                "a .jsonl or .txt file");
}

TEST_CASE("weights that an update made infinite are saved neither in a checkpoint nor in a model") {
  const test::Workshop workshop("infinite_weights");
  for (const std::string save : {"--checkpoint.save_every=1", "--checkpoint.save_every=0"}) {
    const test::Finished run = workshop.train(
        1,
        "--optimizer.lr=1e38 --optimizer.betas=[0.0,0.0] --optimizer.weight_decay=3 --optimizer.no_decay=[] "
        "--train.steps=1 --data.eval= --train.eval_every=0 --run.dir=run " +
            save);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find(", must be finite: the run has diverged; lower optimizer.lr\n") !=
          std::string::npos);
    CHECK(!fs::exists(workshop.file("run/step-1")));
    CHECK(!fs::exists(workshop.file("run/model/model.safetensors")));
  }
}

TEST_CASE("a non-finite loss stops the run and names the step") {
  const test::Workshop workshop("nan_loss");
  const std::string advice = ", must be finite; lower optimizer.lr, or set train.skip_nonfinite = true\n";
  for (const std::string options : {"--optimizer.lr=1e30", "--optimizer.lr=1e30 --precision.compute=fp32",
                                    "--optimizer.lr=1e30 --train.eval_every=1"}) {
    CAPTURE(options);
    const test::Finished run = workshop.train(1, options);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(complaints(run.output) == 1);
    CHECK(run.output.find("\ntrain: step 2: the loss is ") != std::string::npos);
    CHECK(run.output.ends_with(advice));
  }
  const test::Finished skipping = workshop.train(1, "--optimizer.lr=1e30 --train.skip_nonfinite=true");
  CHECK(skipping.exit_code == 1);
  CHECK(
      skipping.output.ends_with("\ntrain: 100 steps in a row were skipped for lack of targets or of finite "
                                "gradients; check data.train, or lower "
                                "optimizer.lr\n"));
}
