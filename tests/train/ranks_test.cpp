// The program train, alone and under mpirun.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "kernels/bf16_products.h"
#include "runtime/text.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/report/start_records.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

}  // namespace

TEST_CASE("one rank and several end with the same weights, losses and evaluations") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("ranks_equal");
  std::set<std::string> seen;
  for (const std::string options :
       {"--precision.compute=bf16", "--precision.compute=fp32 --model.family=gpt2 --model.hidden=22",
        "--precision.compute=fp16 --model.family=qwen3 --train.recompute=true",
        "--precision.compute=bf16 --precision.reduce=bf16 --model.tied=true"}) {
    CAPTURE(options);
    const test::Finished alone = workshop.train(1, options);
    const std::string hash = hash_of(alone);
    REQUIRE_MESSAGE(hash.size() == 64, alone.output);
    CHECK(seen.insert(hash).second);
    const auto same = [&](int ranks, const std::string& cut) {
      CAPTURE(ranks);
      CAPTURE(cut);
      const test::Finished run = workshop.train(ranks, options + cut);
      CHECK_MESSAGE(hash_of(run) == hash, run.output);
      CHECK(test::after(run.output, "eval loss") == test::after(alone.output, "eval loss"));
    };
    same(2, "");
    same(4, "");
    if (options.find("reduce=bf16") == std::string::npos)
      same(2, " --train.batch_size_per_device=4 --train.lane_size=1");
  }
}

TEST_CASE(
    "a run on pipeline stages ends with the weights of one rank, and resumes on other stages and ranks") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("stages");
  for (const std::string model : {"--model.layers=4 ", "--model.layers=4 --model.family=gpt2 "}) {
    CAPTURE(model);
    const std::string hash = hash_of(workshop.train(1, model + "--run.dir=runs/alone"));
    REQUIRE(hash.size() == 64);
    const std::string folder = model.find("gpt2") == model.npos ? "untied" : "tied";
    const test::Finished run =
        workshop.train(4, model + "--parallel.stages=2 --checkpoint.save_every=2 --run.dir=runs/" + folder);
    CHECK_MESSAGE(hash_of(run) == hash, run.output);
    for (const auto& [ranks, options] : {std::pair{1, ""},
                                         {2, "--parallel.stages=2 --parallel.schedule=gpipe"},
                                         {4, "--parallel.stages=4"},
                                         {2, "--parallel.strategy=no_shard"}}) {
      CAPTURE(options);
      const test::Finished resumed =
          workshop.train(ranks, str(model, options, " --run.dir=runs/", folder, ranks,
                                    std::string(options).size(), " --resume runs/", folder, "/step-2"));
      CHECK_MESSAGE(hash_of(resumed) == hash, resumed.output);
    }
  }
}

TEST_CASE("numbers of ranks that are not powers of two agree with one rank to rounding") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("three_ranks");
  const std::string options =
      "--precision.compute=fp32 --train.total_batch_size=6 --log.every=1 --train.steps=20";
  const auto final_loss = [&](int ranks) {
    const test::Finished run = workshop.train(ranks, options);
    REQUIRE_MESSAGE(run.exit_code == 0, run.output);
    std::ifstream metrics(workshop.file("runs/default/metrics.jsonl"));
    std::string line, last;
    while (std::getline(metrics, line)) last = line;
    return std::stod(test::after(last, "\"loss\":"));
  };
  constexpr double kRounding = 1e-6;
  CHECK(final_loss(3) == doctest::Approx(final_loss(1)).epsilon(kRounding));
}

TEST_CASE("ranks whose processors multiply bf16 in different ways are refused") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  if (bf16_products() == choose_bf16_products(Bf16Instructions::none, processor_kind()))
    return test::skip("this processor, or this build, widens bf16 anyway");
  const test::Workshop workshop("bf16_ranks");
  const auto train = [&](const std::string& options) {
    const std::string rank = "@train config.toml --overwrite --run.device=cpu " + options;
    return test::run_command(
        "cd bf16_ranks && " +
        test::launch("-np 1 " + rank + " : -np 1 env ONEDNN_MAX_CPU_ISA=AVX512_CORE " + rank));
  };
  const test::Finished differ = train("--precision.compute=bf16");
  CHECK(differ.exit_code == 1);
  CHECK_MESSAGE(test::missing_from(differ.output, {"rank 1", "products of bf16 = in f32", "rank 0",
                                                   "ONEDNN_MAX_CPU_ISA=AVX512_CORE"}) == "",
                differ.output);
  const test::Finished fp32 = train("--precision.compute=fp32");  // multiplies no bf16
  CHECK_MESSAGE(fp32.exit_code == 0, fp32.output);
}

TEST_CASE("an invalid command ends the run with one line, exit code 1 and nothing written") {
  const test::Workshop workshop("mistakes");
  for (const auto& [options, message] : {
           std::pair{"--optimizer.learning_rate=1",
                     "unknown key optimizer.learning_rate; use optimizer.lr (peak learning rate)"},
           {"--optimizer.lr=fast", "--optimizer.lr: optimizer.lr is the string \"fast\", must be a number"},
           {"--train.total_batch_size=7 --train.batch_size_per_device=2",
            "train.total_batch_size = 7 is not a multiple of batch_size_per_device = 2 times 1 ranks"},
           {"--data.train=missing.tok",
            "data.train is \"missing.tok\", which does not exist; relative paths start in "},
           {"--model.vocab=50", "corpus.tok has a vocabulary of 53, larger than model.vocab = 50"},
           {"--train.eval_every=0 --train.stop_after_no_improvement=2",
            "train.stop_after_no_improvement = 2 counts evaluations, but train.eval_every = 0"},
           {"--train.eval_every=0 --checkpoint.best_every=5",
            "checkpoint.best_every = \"5\" saves evaluations, but train.eval_every = 0"},
           {"--model.trainable='[\"nothing*\"]'", "model.trainable: \"nothing*\" matches no parameter"},
           {"--surprise", "--surprise: unknown option"},
           {"--resume ''", "--resume is \"\", must be latest, auto or a path"},
       }) {
    CAPTURE(options);
    const test::Finished run = workshop.train(1, options);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.starts_with("train: "));
    CHECK(run.output.find(message) != std::string::npos);
    CHECK(std::count(run.output.begin(), run.output.end(), '\n') == 1);
    CHECK(!fs::exists(workshop.file("runs")));
  }
}

TEST_CASE("an error on one rank ends every rank") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("mistakes_of_ranks");
  for (const auto& [options, message] :
       {std::pair{"--data.train=missing.tok",
                  "[rank 0] --data.train: data.train is \"missing.tok\", which does not exist"},
        {"--optimizer.lr=1e30", "must be finite; lower optimizer.lr"},
        {"--train.total_batch_size=2", "is not a multiple of batch_size_per_device = 1 times 4 ranks"}}) {
    CAPTURE(options);
    const test::Finished run = workshop.train(4, options, 60);
    CAPTURE(run.output);
    CHECK(run.exit_code == 1);
    CHECK(run.output.find(message) != std::string::npos);
  }
}

TEST_CASE("a run leaves every documented file in its folder") {
  const test::Workshop workshop("folder");
  const test::Finished run =
      workshop.train(1, "--run.trace=true --log.tensorboard=true --run.hash_every=2 --run.dir=out/run");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  for (const char* name :
       {"config.toml", "metrics.jsonl", "report.html", "trace.json", "overlap.svg", "step1.txt", "run.log",
        "starts.jsonl", "tensorboard", "model/config.json", "model/model.safetensors"}) {
    CAPTURE(name);
    CHECK_FALSE(fs::is_empty(workshop.file("out/run/") + name));
  }
  CHECK(run.output.find("step 2 weights ") != std::string::npos);
  std::ifstream latest(workshop.file("out/latest"));
  std::string path;
  std::getline(latest, path);
  CHECK(path == "out/run");
  // The resolved config is a config: it gives the same run.
  const test::Finished again = test::run_command(
      "cd folder && cp out/run/config.toml again.toml && @train again.toml --run.dir=out/again "
      "--run.trace=false");
  CHECK(hash_of(again) == hash_of(run));
}

TEST_CASE("starts.jsonl records what every start of a run was") {
  const test::Workshop workshop("starts");
  const auto starts = [&] { return read_starts(workshop.file("runs/default/starts.jsonl")); };
  workshop.train(1, "--checkpoint.save_every=6");
  REQUIRE(starts().size() == 1);
  const bool several = test::no_ranks_because().empty();
  const test::Finished run = workshop.train(several ? 2 : 1, "--resume latest --train.steps=8");
  REQUIRE_MESSAGE(starts().size() == 2, run.output);
  const StartRecord first = starts()[0], second = starts()[1];
  CHECK(first.step == 0);
  CHECK(first.ranks == 1);
  CHECK(first.version.starts_with("0."));
  CHECK(first.command == "train config.toml --overwrite --checkpoint.save_every=6");
  CHECK(first.hosts.size() == 1);
  CHECK(second.step == 6);
  CHECK(second.ranks == (several ? 2 : 1));
  CHECK(second.time >= first.time);
  CHECK(test::read_file(workshop.file("runs/default/run.log"))
            .find("\ncommand   train config.toml --resume latest") != std::string::npos);
}

TEST_CASE("step1.txt has every rank's report of the first step, and log.step1 prints it") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("first_step");
  constexpr int kRanks = 4;
  const test::Finished run = workshop.train(kRanks, "--log.step1=true"),
                       quiet = workshop.train(kRanks, "--run.dir=runs/quiet");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  std::ifstream in(workshop.file("runs/default/step1.txt"));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  constexpr size_t kBrief = 3, kUnits = 4;
  REQUIRE(lines.size() == kRanks * (kBrief + kUnits));
  std::set<std::string> rows;
  double shares = 0;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    const std::string prefix = str("[rank ", rank, "] step 1: ");
    for (size_t i = 0; i < kBrief; ++i) {
      const std::string& line = lines[rank * kBrief + i];
      CHECK(line.starts_with(prefix + (i == 0   ? "memory now "
                                       : i == 1 ? "mini-batch of 1 x 16 "
                                                : "1st row")));
      CHECK(run.output.find(line + '\n') != std::string::npos);
    }
    rows.insert(test::after(lines[rank * kBrief + 2], "mini-batch: "));
    const std::string& block = lines[kRanks * kBrief + rank * kUnits + 1];
    CHECK(block.starts_with(prefix + "model.layers.0: "));
    shares += std::stod(block.substr(block.find('(') + 1));
  }
  CHECK(rows.size() == kRanks);
  constexpr double kTwoDecimals = 0.03;
  CHECK(std::abs(shares - 100) <= kTwoDecimals);
  CHECK(quiet.output.find("step 1: ") == std::string::npos);
  CHECK(fs::exists(workshop.file("runs/quiet/step1.txt")));
}

TEST_CASE("--plan shows the memory of each reduction, which is what a run allocates") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("plans");
  const auto line = [](const std::string& text, const std::string& begin) {
    const size_t at = text.rfind("\n  " + begin + " ");  // after the table of units
    return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  };
  const auto number = [](const std::string& text) {
    return std::stoll(text.substr(text.find_first_of("0123456789")));
  };
  for (const std::string way : {"exact", "sequential", "native"}) {
    CAPTURE(way);
    const std::string text = workshop.train(2, "--plan --parallel.reduction=" + way).output;
    CHECK(number(line(text, way)) == number(line(text, "all  ")));
    CHECK(line(text, way).find("(in use)") != std::string::npos);
  }
  const std::string text = workshop.train(2, "--plan").output;
  CHECK(number(line(text, "exact")) > number(line(text, "sequential")));
  const auto [exact, sequential] = std::pair{number(line(text, "exact")), number(line(text, "sequential"))};
  CHECK_MESSAGE(
      text.starts_with(str("memory    ", human_bytes(exact), " on rank 0 with exact sums of gradients, ",
                           human_bytes(sequential), " with --parallel.reduction=sequential")),
      text);
  CHECK(workshop.train(2, "--plan --precision.reduce=bf16")
            .output.find("requires precision.reduce = \"fp32\", not \"bf16\"") != std::string::npos);
}

TEST_CASE("--plan shows units, their bytes, and the tokens that hide them") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("plan_of_units");
  const test::Finished plan = workshop.train(2, "--plan --parallel.bandwidth_gbps=2");
  CHECK(plan.exit_code == 0);
  for (const char* text : {"bytes gathered", "\n  model.layers.0-1 x2 ", "at 2.0 GB/s (configured)",
                           "tokens per micro-batch; this run has 16\n"})
    CHECK_MESSAGE(plan.output.find(text) != std::string::npos, plan.output);
  CHECK(workshop.train(2, "--plan").output.find("B/s (measured)") != std::string::npos);
  CHECK(workshop.train(1, "--plan").output.find("tokens per micro-batch") == std::string::npos);
}

TEST_CASE("--plan and --print-config need no data") {
  const test::Workshop workshop("no_data");
  const test::Finished plan = workshop.train(1, "--plan --data.train=missing.tok");
  CHECK(plan.exit_code == 0);
  CHECK(plan.output.find("trainable params: ") != std::string::npos);
  const test::Finished print = workshop.train(1, "--print-config --data.train=missing.tok");
  CHECK(print.exit_code == 0);
  CHECK(print.output.find("train = \"missing.tok\"") != std::string::npos);
  CHECK(print.output.find("# command line") != std::string::npos);
}

TEST_CASE("--plan needs of published weights config.json alone") {
  const test::Workshop workshop("config_alone");
  fs::create_directories(workshop.file("published"));
  std::ofstream(workshop.file("published/config.json"))
      << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
             "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 61,
             "max_position_embeddings": 32, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
             "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
  std::ofstream(workshop.file("plan.toml"))
      << "[model]\ninit_from = \"published\"\n[data]\ntrain = \"corpus.tok\"\n"
         "seq_len = 16\n[train]\nsteps = 1\ntotal_batch_size = 8\n"
         "batch_size_per_device = 1\n[optimizer]\nlr = 1e-3\n";
  const test::Finished plan = test::run_command("cd config_alone && @train plan.toml --plan --ranks 2", 60);
  CHECK_MESSAGE(plan.exit_code == 0, plan.output);
  CHECK_MESSAGE(plan.output.find("its weights are not there") != std::string::npos, plan.output);
  CHECK_MESSAGE(plan.output.find("rank 0 of 2") != std::string::npos, plan.output);
  const test::Finished run = test::run_command("cd config_alone && @train plan.toml", 60);
  CHECK_MESSAGE(run.exit_code == 1, run.output);
}

TEST_CASE("--plan is for as many ranks as a file of accelerate says") {
  const test::Workshop workshop("plan_accelerate");
  std::ofstream(workshop.file("a.yaml")) << "distributed_type: FSDP\nnum_processes: 4\n";
  const test::Finished plan = workshop.train(1, "--plan --accelerate a.yaml");
  CHECK_MESSAGE(plan.output.find("rank 0 of 4") != std::string::npos, plan.output);
  const test::Finished other = workshop.train(1, "--plan --accelerate a.yaml --ranks 2");
  CHECK_MESSAGE(other.output.find("rank 0 of 2") != std::string::npos, other.output);
}
