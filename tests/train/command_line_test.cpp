// The command line of the program train, and what a run prints before its first step.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/whole_file.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;

namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The lines of a printed config, without the sources of its values.
std::string values_in(const std::string& config) {
  std::istringstream in(config);
  std::string values;
  for (std::string line; std::getline(in, line);)
    values += line.substr(0, line.find_last_not_of(' ', line.find("  #")) + 1) + '\n';
  return values;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("a key takes its value after an equals sign or as the next argument") {
  const test::Workshop workshop("arguments");
  const test::Finished run =
      workshop.train(1, "--train.steps 3 --print-config --optimizer.lr=2e-3 --run.dir -odd");
  CHECK(run.exit_code == 0);
  CHECK(has(run.output, "\nsteps = 3 "));
  CHECK(has(run.output, "\nlr = 0.002 "));
  CHECK(has(run.output, "\ndir = \"-odd\" "));
  CHECK(has(workshop.train(1, "--optimizer.lr -2").output, "optimizer.lr is -2, must be at least 0\n"));
  for (const std::string last : {"--train.steps", "--train.steps --plan"})
    CHECK(workshop.train(1, last).output ==
          "train: --train.steps: its value is missing: write --section.key=value\n");
}

TEST_CASE("an argument that is neither an option nor a key is answered with what was probably meant") {
  const test::Workshop workshop("odd_arguments");
  for (const auto& [options, message] :
       {std::pair{"--verbos", "--verbos: unknown option; did you mean --verbose? See train --help"},
        {"--steps 5", "--steps: unknown option; did you mean --train.steps?"},
        {"--max-steps 5", "--max-steps: unknown key max-steps; use train.steps (optimizer steps)"},
        {"train.steps=5", "train.steps=5: unexpected argument; to set a config key, write --train.steps=5"},
        {"other.toml",
         "other.toml: unexpected argument; train takes one config file, and options; see "
         "train --help"},
        {"--surprise",
         "--surprise: unknown option; train takes a config file, options, and config keys as "
         "--section.key=value, see train --help"},
        {"--accelrate x", "--accelrate: unknown option; did you mean --accelerate? See train --help"},
        {"--config x",
         "--config: unknown option; train takes a config file, options, and config keys as "
         "--section.key=value, see train --help"},
        {"--wandb",
         "--wandb: unknown key wandb; there is no such setting: every run writes metrics.jsonl and "
         "report.html into run.dir; log.tensorboard = true adds event files"}}) {
    CAPTURE(options);
    const test::Finished run = workshop.train(1, options);
    CHECK(run.exit_code == 1);
    CHECK(run.output == str("train: ", message, '\n'));
  }
  CHECK(test::run_command("@train").output ==
        "train: CONFIG is required; usage: train CONFIG [OPTIONS], see train --help\n");
}

TEST_CASE("--help shows the keys of most runs, --help all every key, and --explain one or a section") {
  const std::string some = test::run_command("@train --help").output,
                    all = test::run_command("@train --help all").output;
  CHECK(has(some, "\n  optimizer.lr "));
  CHECK(!has(some, "\n  optimizer.eps "));
  CHECK(has(some, "\nExit codes:\n"));
  CHECK(has(all, "\n  optimizer.eps "));
  CHECK(has(all, "\n  --resume "));
  CHECK(has(all, "\nExit codes:\n"));
  CHECK(has(test::run_command("@train --describe man").output, "optimizer.eps"));
  const test::Finished key = test::run_command("@train --explain train.steps");
  CHECK(key.exit_code == 0);
  CHECK(key.output.starts_with("train.steps\n"));
  CHECK(has(test::run_command("@train --explain schedule").output, "\n  schedule.warmup_ratio "));
  CHECK(test::run_command("@train --explain train.step").output ==
        "train: unknown key train.step; the nearest known one is train.steps\n");
  CHECK(test::run_command("@train --explain train.steps x.toml").exit_code == 1);
}

TEST_CASE("a printed config has no open choice, and means the same run") {
  const test::Workshop workshop("printed");
  const std::string options = " --train.epochs 1 --train.eval_batch_size_per_device 2";
  const std::string printed = workshop.train(1, options + " --print-config").output;
  CHECK(printed.starts_with("# --train.epochs = 1.0 replaces train.steps = 6 of config.toml:16\n"));
  const std::string values = values_in(printed);
  size_t open = 0;
  for (size_t at = 0; (at = values.find("\"auto\"", at)) != values.npos; ++at) ++open;
  // run.attention, run.products, quant.compute and parallel.device_map, which have no effect, and
  // parallel.levels, which other hosts choose anew.
  CHECK(open == 5);
  for (const char* line : {"\nhead_dim = 12 ", "\nkv_heads = 2 ", "\nmax_positions = 16 ", "\nlane_size = 1 ",
                           "\ndevice = \"cpu\" ", "\ntied = false ", "\ntransport = \"mpi\" "})
    CHECK_MESSAGE(has(printed, line), line);
  CHECK(has(printed, "# default: decided by the family\n"));
  CHECK(has(printed, "# default: \"auto\"\n"));
  std::ofstream(workshop.file("printed.toml")) << printed;
  const std::string in_folder = "cd printed && @train printed.toml ";
  CHECK(values_in(test::run_command(in_folder + "--print-config").output) ==
        values_in(printed.substr(printed.find('\n') + 1)));
  const auto hash = [](const test::Finished& run) { return test::after(run.output, "\nweights "); };
  CHECK(hash(test::run_command(in_folder + "--run.dir=again")) == hash(workshop.train(1, options)));
}

TEST_CASE("a printed config says which learning rate optimizer.lr_scaling gives") {
  const test::Workshop workshop("printed_rate");
  const std::string printed = workshop
                                  .train(1,
                                         "--optimizer.lr_scaling=sqrt --optimizer.base_batch_size=2 "
                                         "--optimizer.lr=0.5 --print-config")
                                  .output;
  CHECK_MESSAGE(has(printed, "\nlr = 0.5 "), printed);
  CHECK_MESSAGE(has(printed, "# command line; the run takes 1, by optimizer.lr_scaling\n"), printed);
  CHECK(!has(workshop.train(1, "--print-config").output, "the run takes"));
}

TEST_CASE("a run prints at most 15 lines before its first step, and run.log has all details") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("quiet");
  const test::Finished run = workshop.train(2, "--checkpoint.save_every 3");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  const std::string header = run.output.substr(0, run.output.find("1/6  loss"));
  CHECK(std::count(header.begin(), header.end(), '\n') <= 15);
  CHECK(has(header, "\nmemory    of rank 0, exact, "));
  CHECK(has(header, "\ndetails   runs/default/run.log, or --verbose\n"));
  CHECK(!has(header, "\nunits  "));
  const std::string log = text_of(workshop.file("runs/default/run.log"));
  for (const char* part :
       {"\nunits     ", "\n  activations ", "\n6/6  loss ", "\nstep 3: eval loss ", "\nweights "})
    CHECK_MESSAGE(has(log, part), part);
  const test::Finished resumed =
      workshop.train(2, "--checkpoint.save_every 3 --resume runs/default/step-3 --verbose");
  REQUIRE_MESSAGE(resumed.exit_code == 0, resumed.output);
  CHECK(has(resumed.output, "\nunits     "));
  const std::string longer = text_of(workshop.file("runs/default/run.log"));
  CHECK(longer.starts_with(log));
  CHECK(has(longer.substr(log.size()), "\nresumed   "));
}

TEST_CASE("a run that fails says so in run.log") {
  const test::Workshop workshop("failing");
  CHECK(workshop.train(1, "--optimizer.lr=1e30").exit_code == 1);
  CHECK(has(text_of(workshop.file("runs/default/run.log")), "\nfailed: step 2: the loss is "));
}

TEST_CASE("a mistake on the command line is reported although a rank starts late") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const std::string output =
      test::run_command(test::launch("-np 1 @generate run --surprise : -np 1 sh -c \"sleep 2; exec @generate "
                                     "run --surprise\""))
          .output;
  CAPTURE(output);
  CHECK(has(output, "[rank 0] --surprise: unknown option"));
  CHECK(!has(output, "has taken"));
}

TEST_CASE("of several ranks one reports a mistake on the command line, and MPI adds nothing") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("mistakes_of_one");
  for (const auto& [command, message] :
       {std::pair{"@train config.toml --model.layrs=2", "unknown key model.layrs"},
        {"@train missing.toml", "missing.toml"},
        {"@train config.toml --surprise", "--surprise: unknown option"},
        {"@evaluate run --surprise", "unknown command"},
        {"@generate run --surprise", "--surprise"}}) {
    CAPTURE(command);
    const test::Finished run =
        test::run_command("cd mistakes_of_one; " + test::launch(str("-np 3 ", command)));
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    const size_t found = run.output.find(": [rank 0] ");
    REQUIRE(found != std::string::npos);
    CHECK(run.output.find(message, found) != std::string::npos);
    CHECK(run.output.find("[rank ", found + 4) == std::string::npos);
    CHECK(!has(run.output, "MPI_ABORT was invoked"));
  }
}

TEST_CASE("a launcher that starts no rank fails") {
  const test::Workshop workshop("no_rank");
  for (const char* launcher : {"true", "echo", "sh -c 'exit 0'"}) {
    CAPTURE(launcher);
    const test::Finished run = workshop.train(1, str("--launch \"", launcher, '"'));
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(has(run.output, str("train: the launcher ended without starting a rank of train: ", launcher)));
    CHECK(!std::filesystem::exists(workshop.file("runs")));
  }
  CHECK(workshop.train(1, "--launch false").exit_code == 1);
  CHECK(workshop.train(1, "--launch 'sh -c \"exit 3\"'").exit_code == 3);
  const test::Finished run = workshop.train(1, "--launch env");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  for (const auto& entry : std::filesystem::directory_iterator(workshop.file(".")))
    CHECK(!entry.path().filename().string().starts_with(".rank-starts-"));
}

TEST_CASE("an accelerate file is overridden by the config file and the command line") {
  const test::Workshop workshop("accelerate");
  const auto write = [&](const std::string& processes) {
    write_whole_file(workshop.file("a.yaml"), "distributed_type: FSDP\nnum_processes: " + processes +
                                                  "\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
                                                  "  fsdp_state_dict_type: FULL_STATE_DICT\n"
                                                  "mixed_precision: bf16\n");
  };
  write("1");
  const std::string shown =
      workshop.train(1, "--accelerate a.yaml --print-config --parallel.wrap=block").output;
  for (const char* text : {"strategy = \"shard_grad_op\"", "# a.yaml:4", "wrap = \"block\"", "# a.yaml:6",
                           "# a.yaml:5: fsdp_state_dict_type is ignored: ", "a.yaml (accelerate's default)"})
    CHECK_MESSAGE(shown.find(text) != std::string::npos, shown);
  const test::Finished run = workshop.train(1, "--accelerate a.yaml --train.steps=1");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
  write("3");
  const test::Finished refused = workshop.train(1, "--accelerate a.yaml");
  CHECK(refused.exit_code == 1);
  CHECK_MESSAGE(
      refused.output.find("a.yaml: num_processes is 3, but this run has 1 rank: start it with --ranks 3") !=
          std::string::npos,
      refused.output);
  const std::string other = workshop.train(1, "--accelerate a.yaml --print-config").output;
  CHECK_MESSAGE(has(other, "# a.yaml: num_processes is 3: start as many, with --ranks 3\n"), other);
}
