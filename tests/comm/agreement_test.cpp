#include "comm/agreement.h"

#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "runtime/fingerprint.h"
#include "tests/job.h"
#include "tests/small_model.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "text/data/token_file.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A message that names this machine.
std::string here(std::string message) {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  for (size_t at; (at = message.find("HOST")) != message.npos;) message.replace(at, 4, name);
  return message;
}

// Two ranks in folders of their own, with equal configs.
test::Finished run_in_two_folders(const std::string& name, const std::string& options) {
  const std::string train = "@train config.toml --run.dir=" + fs::absolute(name).string() + "/run " + options;
  test::Job job(name, "-np 1 " + train + " : -np 1 sh -c 'cd other && exec " + train + "'");
  return job.wait();
}

}  // namespace

TEST_CASE("the first difference between two ranks is named, whichever of them has it") {
  CHECK(difference(1, 0, {"a = 1\nb = 2\n", "a = 1\nb = 2\n"}) == "");
  CHECK(difference(2, 0, {"a = 1\nb = 2\n", "a = 1\nb = 2\n", "a = 1\nb = 3\n"}) ==
        "rank 2 has b = 3, rank 0 has 2");
  CHECK(difference(1, 0, {"a = 1\nb = 2\nc = 3\n", "a = 1\nb = 5\nc = 4\n"}) ==
        "rank 1 has b = 5, rank 0 has 2");
  CHECK(difference(1, 0, {"a = 1\nb = \"x = y\"\n", "a = 1\n"}) == "rank 1 has no b, rank 0 has \"x = y\"");
  CHECK(difference(1, 0, {"a = 1\n", "a = 1\nb = 2\n"}) == "rank 1 has b = 2, rank 0 has none");
  CHECK(difference(1, 0, {"a = 1\n", "a = 2\n"}, {"node3", "node7"}) ==
        "rank 1 on node7 has a = 2, rank 0 on node3 has 1");
}

TEST_CASE("a rank with another config ends all ranks with one line that names the difference") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("other_config");
  for (const auto& [odd, message] : {
           std::pair{
               "--optimizer.lr=0.002",
               "[rank 0] rank 2 on HOST has optimizer.lr = 0.002, rank 0 on HOST has 0.01: every rank must "
               "run the same program and read the same config"},
           {"--parallel.strategy=no_shard",
            "rank 2 on HOST has parallel.strategy = \"no_shard\", rank 0 on HOST has \"full_shard\""},
           {"--model.tied=true", "rank 2 on HOST has model.tied = true, rank 0 on HOST has none"},
           {"--train.total_batch_size=12 --train.batch_size_per_device=2",
            "rank 2 on HOST has train.total_batch_size = 12"},
           {"--plan", "rank 2 on HOST has task = plan, rank 0 on HOST has train"},
           {"--optimizer.lrr=1", "[rank 2] --optimizer.lrr: unknown key optimizer.lrr"},
           {"--data.train=missing.tok",
            "rank 2 on HOST has data.train = \"missing.tok\", rank 0 on HOST has \"corpus.tok\""},
       }) {
    CAPTURE(odd);
    const std::string train = "@train config.toml --train.total_batch_size=6";
    test::Job job("other_config", str("-np 2 ", train, " : -np 1 ", train, ' ', odd));
    const test::Finished run = job.wait();
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find(here(message)) != std::string::npos);
    CHECK(count_of(run.output, "train: [rank") == 1);
  }
}

TEST_CASE("all ranks that differ from rank 0 are named, with their hosts") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("other_configs");
  test::Job job("other_configs",
                "-np 1 @train config.toml --train.total_batch_size=6 : "
                "-np 2 @train config.toml --train.total_batch_size=6 --optimizer.lr=0.002");
  const test::Finished run = job.wait();
  CHECK_MESSAGE(
      run.output.find(here("[rank 0] rank 1 on HOST has optimizer.lr = 0.002, rank 0 on HOST has "
                           "0.01; in all, ranks 1-2 on HOST differ: every rank must")) != std::string::npos,
      run.output);
}

TEST_CASE("ranks that run different programs stop before they read their inputs") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("other_program");
  test::Job job("other_program",
                "-np 1 @train config.toml : -np 1 "
                "sh -c 'cp @train other_train && echo >>other_train && exec ./other_train config.toml'");
  const test::Finished run = job.wait();
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.output.find(here("rank 1 on HOST has program = ")) != std::string::npos);
  CHECK(count_of(run.output, "train: [rank") == 1);
}

TEST_CASE("ranks with different data or base weights stop before the first step with both values") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("other_inputs"), other("other_inputs/other");
  for (const std::string where : {"", "other/"}) {
    fs::copy_file(workshop.file("corpus.tok"), workshop.file(where + "eval.tok"),
                  fs::copy_options::overwrite_existing);
    StreamSet streams(Device::cpu());
    const ResidentModel model(test::small_model("llama", 53), DType::f32, streams.add("compute"));
    test::fill_random(model, where.empty() ? 0.3f : 0.2f);
    test::write_model_folder(workshop.file(where + "base"), model);
  }
  const auto written = [&](const std::string& path, int32_t token) {
    TokenWriter writer(workshop.file(path), 53);
    writer.add_document(std::vector<int32_t>(400, token));
    writer.finish();
    return fingerprint({workshop.file(path)});
  };
  // One file of the same length, so that only the content differs, and one of another length.
  const std::string ours = written("ours.tok", 3), theirs = written("other/ours.tok", 4);
  const test::Finished train = run_in_two_folders("other_inputs", "--data.train=ours.tok");
  CHECK(train.exit_code == 1);
  CHECK_MESSAGE(train.output.find(here("rank 1 on HOST has data.train = " + theirs + ", rank 0 on HOST has " +
                                       ours + ": every rank must read the same files")) != std::string::npos,
                train.output);
  TokenWriter longer(workshop.file("other/eval.tok"), 53);
  longer.add_document(std::vector<int32_t>(5000, 1));
  longer.finish();
  const test::Finished eval = run_in_two_folders("other_inputs", "--data.eval=eval.tok");
  CHECK_MESSAGE(eval.output.find(here("rank 1 on HOST has data.eval = ")) != std::string::npos, eval.output);
  const std::string base =
      "--model.init_from=base --model.layers=2 --data.seq_len=16 --parallel.cpu_ram_efficient_loading=";
  for (const std::string efficient : {"false", "true"}) {
    fs::remove_all(workshop.file("config.toml"));
    fs::remove_all(workshop.file("other/config.toml"));
    for (const std::string where : {"config.toml", "other/config.toml"})
      std::ofstream(workshop.file(where)) << "[data]\ntrain = \"corpus.tok\"\n[train]\nsteps = 1\n"
                                             "total_batch_size = 2\n[optimizer]\nlr = 0.01\n";
    const test::Finished run = run_in_two_folders("other_inputs", base + efficient);
    CAPTURE(run.output);
    CHECK((run.exit_code == 0) == (efficient == "true"));  // rank 0 reads for all
    CHECK((run.output.find(here("rank 1 on HOST has model.init_from = ")) != std::string::npos) ==
          (efficient == "false"));
  }
}
