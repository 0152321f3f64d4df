// Runs of mixtures of experts, through the program train.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "checkpoint/float_values.h"
#include "checkpoint/tensor_folder.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/report/metrics.h"

using namespace flatshard;

namespace {

const std::string kMixture =
    "--model.family=mixtral --model.ffn=32 --model.experts=4 --model.experts_per_token=2 "
    "--precision.compute=fp32 --train.router_aux_loss=0.5 --train.router_z_loss=0.1 --data.packing=none ";

std::vector<StepMetrics> metrics_of(const test::Workshop& workshop, int ranks, const std::string& options) {
  const test::Finished run = workshop.train(ranks, kMixture + options);
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  return read_metrics(workshop.file("runs/default/metrics.jsonl"));
}

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

// Options of a run on the mixture that the first run saved.
const std::string kFromBase =
    kMixture + "--model.init_from=base/model --train.steps=4 --checkpoint.save_every=2 ";
const std::string kExpertAdapters =
    kFromBase + "--lora.rank=3 --lora.targets='[\"gate_up_proj\", \"down_proj\", \"q_proj\"]' ";

test::Workshop with_base(const std::string& name) {
  test::Workshop workshop(name);
  const test::Finished base = workshop.train(1, kMixture + "--train.steps=2 --run.dir=base");
  REQUIRE_MESSAGE(base.exit_code == 0, base.output);
  return workshop;
}

// Runs on these ranks with these options more, and resumes the run `whole`, each with its weights.
void check_same(const test::Workshop& workshop, int ranks, const std::string& options,
                const std::string& hash) {
  CAPTURE(ranks);
  CAPTURE(options);
  const test::Finished run = workshop.train(ranks, options + " --run.dir=on");
  CHECK_MESSAGE(hash_of(run) == hash, run.output);
  std::filesystem::remove_all(workshop.file("resumed"));
  const test::Finished resumed = workshop.train(ranks, options + " --resume whole/step-2 --run.dir=resumed");
  CHECK_MESSAGE(hash_of(resumed) == hash, resumed.output);
}

double metric(const StepMetrics& m, const std::string& name) {
  for (const auto& [key, value] : m.experts)
    if (key == name) return value;
  return NAN;
}

}  // namespace

// Sequences hold the same documents, with more padding behind them. The routers' losses are large, and would
// be smaller for each row of padding.
TEST_CASE("padding changes neither the losses of a mixture nor the loads of its experts") {
  const test::Workshop workshop("expert_padding");
  constexpr double kRounding = 1e-5;  // sums over rows in another order
  const std::vector<StepMetrics> few = metrics_of(workshop, 1, "--data.seq_len=34 --train.lane_size=2"),
                                 many = metrics_of(workshop, 1, "--data.seq_len=60 --train.lane_size=2");
  REQUIRE(few.size() == many.size());
  for (size_t i = 0; i < few.size(); ++i) {
    CHECK(std::abs(many[i].loss / few[i].loss - 1) < kRounding);
    CHECK(std::abs(many[i].grad_norm / few[i].grad_norm - 1) < 10 * kRounding);
    CHECK(metric(many[i], "max_load") == doctest::Approx(metric(few[i], "max_load")));
    CHECK(metric(many[i], "entropy") == doctest::Approx(metric(few[i], "entropy")));
  }
}

TEST_CASE("the loads of experts are those of all ranks") {
  const test::Workshop workshop("expert_loads");
  const std::vector<StepMetrics> one = metrics_of(workshop, 1, "--data.seq_len=34");
  for (const StepMetrics& m : one) {
    CHECK(metric(m, "max_load") >= 1);
    CHECK(metric(m, "max_load") <= 2);  // all tokens go to one of four experts, and half of their choices
    CHECK(metric(m, "entropy") > 0);
    CHECK(metric(m, "entropy") <= 1);
    CHECK(metric(m, "unused") == 0);
    CHECK(metric(m, "aux_loss") > 1.5);  // 2 if loads are even
    CHECK(metric(m, "aux_loss") < 4);
    CHECK(metric(m, "z_loss") > 0);
  }
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const std::vector<StepMetrics> two = metrics_of(workshop, 2, "--data.seq_len=34");
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(metric(two[i], "max_load") == metric(one[i], "max_load"));
    CHECK(metric(two[i], "entropy") == metric(one[i], "entropy"));
    CHECK(metric(two[i], "aux_loss") == doctest::Approx(metric(one[i], "aux_loss")));
    CHECK(metric(two[i], "z_loss") == doctest::Approx(metric(one[i], "z_loss")));
  }
}

TEST_CASE("with run.balanced_routing all experts get as many tokens") {
  const test::Workshop workshop("expert_turns");
  const std::vector<StepMetrics> metrics =
      metrics_of(workshop, 1, "--data.packing=documents --run.balanced_routing=true");
  for (const StepMetrics& m : metrics) {
    CHECK(metric(m, "max_load") == 1);
    CHECK(metric(m, "aux_loss") == doctest::Approx(2));  // the experts of a token
  }
}

TEST_CASE("evaluate experts prints the loads of each block, the same on any number of ranks") {
  const test::Workshop workshop = with_base("expert_use");
  const std::string in = "cd " + workshop.file("") + " && ",
                    command = "@evaluate experts base/model corpus.tok --device cpu --seq-len 16";
  const test::Finished alone = test::run_command(in + command + " --out loads.svg");
  CAPTURE(alone.output);
  REQUIRE(alone.exit_code == 0);
  const std::string table = alone.output.substr(0, alone.output.find("loads.svg"));
  CHECK(test::missing_from(table, {"block  max load  entropy  unused  information  shuffled", "\n    0 ",
                                   "\n mean ", " tokens\n"}) == "");
  CHECK(std::filesystem::exists(workshop.file("loads.svg")));
  const test::Finished dense =
      test::run_command(in +
                        "@train config.toml --overwrite --run.device=cpu --train.steps=1 --run.dir=dense && "
                        "@evaluate experts dense/model corpus.tok --device cpu");
  CHECK(dense.exit_code == 1);
  CHECK(dense.output.find("has no experts") != std::string::npos);
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  CHECK(test::run_command(in + test::launcher(2) + " " + command).output == table);
}

TEST_CASE("adapters of experts on 4-bit weights have the same bits on any ranks") {
  const test::Workshop workshop = with_base("expert_adapters");
  const std::string options = kExpertAdapters + "--quant.base=nf4 ";
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  // The folder that ckpt writes has the same codes.
  const test::Finished folder =
      test::run_command("cd " + workshop.file("") + " && @ckpt quantize base/model --experts --out four_bit");
  REQUIRE_MESSAGE(folder.exit_code == 0, folder.output);
  const test::Finished stored =
      workshop.train(1, kExpertAdapters + "--model.init_from=four_bit --run.dir=stored");
  CHECK_MESSAGE(hash_of(stored) == hash_of(whole), stored.output);
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  check_same(workshop, 2, options, hash_of(whole));
}

TEST_CASE("checkpoints resume where files have all experts of a block in one tensor") {
  const test::Workshop workshop("joined");
  const std::string options =
      "--model.family=granitemoe --model.ffn=32 --model.experts=4 --model.experts_per_token=2 "
      "--train.steps=4 --checkpoint.save_every=2 ";
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  check_same(workshop, 1, options, hash_of(whole));
}

TEST_CASE("models with sinks and biases of experts have the same bits on any ranks, and on 4-bit weights") {
  const test::Workshop workshop("sinks");
  const std::string model =
      "--model.family=gpt_oss --model.ffn=32 --model.experts=4 --model.experts_per_token=2 --model.window=7 "
      "--precision.compute=fp32 ";
  const std::string options =
      model + "--train.router_aux_loss=0.1 --train.steps=4 --checkpoint.save_every=2 ";
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  check_same(workshop, 1, options + "--train.recompute=true", hash_of(whole));

  const std::string adapters = model + "--train.steps=2 --lora.rank=2 ",
                    on_heads = adapters + "--lora.targets='[\"q_proj\", \"o_proj\"]' ",
                    from_whole = "--model.init_from=whole/model ", in_four_bits = "--quant.base=nf4 ";
  const test::Finished quantized =
      workshop.train(1, on_heads + from_whole + in_four_bits + "--run.dir=quantized");
  REQUIRE_MESSAGE(hash_of(quantized).size() == 64, quantized.output);
  const test::Finished folder = test::run_command("cd " + workshop.file("") +
                                                  " && @ckpt quantize whole/model --experts --out four_bit");
  REQUIRE_MESSAGE(folder.exit_code == 0, folder.output);
  const test::Finished stored = workshop.train(1, on_heads + "--model.init_from=four_bit --run.dir=stored");
  CHECK_MESSAGE(hash_of(stored) == hash_of(quantized), stored.output);
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  check_same(workshop, 2, options + "--parallel.wrap=attention_mlp", hash_of(whole));
  CHECK(hash_of(workshop.train(2, on_heads + from_whole + in_four_bits + "--run.dir=on")) ==
        hash_of(quantized));
}

TEST_CASE("adapters of all experts in one tensor have the same bits on any ranks") {
  for (const std::string family : {"gpt_oss", "granitemoe"}) {
    CAPTURE(family);
    const test::Workshop workshop("joined_adapters");
    const std::string model = "--model.family=" + family +
                              " --model.ffn=32 --model.experts=4 --model.experts_per_token=2 "
                              "--precision.compute=fp32 ",
                      options = model +
                                "--model.init_from=base/model --train.steps=4 --checkpoint.save_every=2 "
                                "--lora.rank=3 --lora.targets='[\"gate_up_proj\", \"down_proj\"]' ";
    const test::Finished base = workshop.train(1, model + "--train.steps=2 --run.dir=base");
    REQUIRE_MESSAGE(base.exit_code == 0, base.output);
    for (const char* const format : {"", "--quant.base=nf4 "}) {
      const test::Finished whole = workshop.train(1, options + format + "--run.dir=whole --overwrite");
      REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
      check_same(workshop, 1, options + format + "--train.recompute=true", hash_of(whole));
      if (!test::no_ranks_because().empty()) continue;
      check_same(workshop, 2, options + format, hash_of(whole));
      check_same(workshop, 2, options + format + "--parallel.offload=true --parallel.wrap=attention_mlp",
                 hash_of(whole));
    }
  }
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
}

// tests/comm/rank_matrix_test.cpp draws more ways to divide a step.
TEST_CASE("ranks that divide experts end with the weights of one rank, and resume each other's checkpoints") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("expert_groups");
  const std::string options =
      "--model.family=mixtral --model.hidden=64 --model.heads=4 --model.kv_heads=2 --model.ffn=64 "
      "--model.experts=8 --model.experts_per_token=2 --train.router_aux_loss=0.1 --train.steps=4 "
      "--data.packing=none --data.seq_len=34 --checkpoint.save_every=2 ";
  const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  check_same(workshop, 2, options + "--parallel.expert_ranks=2 --train.recompute=true", hash_of(whole));
  check_same(workshop, 4, options + "--parallel.expert_ranks=2 --parallel.offload=true", hash_of(whole));
  const test::Finished four = workshop.train(4, options + "--parallel.expert_ranks=4 --run.dir=four");
  CHECK_MESSAGE(hash_of(four) == hash_of(whole), four.output);
  CHECK_MESSAGE(
      test::missing_from(four.output,
                         {"experts   4 ranks divide the experts of a block, 2 each; each receives "}) == "",
      four.output);
  const test::Finished resumed = workshop.train(2, options + "--resume four/step-2 --run.dir=resumed2");
  CHECK_MESSAGE(hash_of(resumed) == hash_of(whole), resumed.output);
}

TEST_CASE("biases of experts move towards even loads, by the counts of all ranks") {
  const test::Workshop workshop("bias_rate");
  const std::string
      options =
          "--model.family=glm4_moe --model.ffn=32 --model.experts=8 --model.experts_per_token=2 "
          "--model.expert_ffn=32 --model.shared_ffn=32 --model.dense_blocks=[0] --precision.compute=fp32 "
          "--checkpoint.save_every=2 ",
      moving = options + "--train.steps=4 --train.router_bias_rate=0.25 ";
  const test::Finished whole = workshop.train(1, moving + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const TensorFolder model(workshop.file("whole/model"), "model");
  std::vector<float> bias(8);
  read_floats(*model.find("model.layers.1.mlp.gate.e_score_correction_bias"), 0, 8, bias.data());
  float moved = 0;
  for (const float value : bias) {
    CHECK(value * 4 == std::round(value * 4));
    CHECK(std::abs(value) <= 1);
    moved += std::abs(value);
  }
  CHECK(moved > 0);
  for (const char* const memory : {"", "--parallel.offload=true", "--parallel.strategy=no_shard"})
    check_same(workshop, 1, moving + memory, hash_of(whole));

  // Moved the other way, biases would soon send all tokens to two experts of eight: a load of 4.
  const test::Finished longer =
      workshop.train(1, options + "--train.steps=40 --optimizer.lr=1e-5 --train.router_bias_rate=0.02");
  REQUIRE_MESSAGE(longer.exit_code == 0, longer.output);
  CHECK(metric(read_metrics(workshop.file("runs/default/metrics.jsonl")).back(), "max_load") < 2);
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  for (const char* const strategy : {"full_shard", "no_shard"})
    check_same(workshop, 2, str(moving, "--parallel.strategy=", strategy), hash_of(whole));
}

TEST_CASE("the loss that balances experts counts those of all stages") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop("expert_stages");
  const std::string options =
      kMixture + "--model.layers=4 --train.lane_size=1 --train.batch_size_per_device=1 ";
  const test::Finished alone = workshop.train(1, options);
  REQUIRE_MESSAGE(hash_of(alone).size() == 64, alone.output);
  for (const std::string stages :
       {"--parallel.stages=2", "--parallel.stages=2 --parallel.schedule=interleaved"}) {
    CAPTURE(stages);
    const test::Finished run = workshop.train(2, options + stages);
    CHECK_MESSAGE(hash_of(run) == hash_of(alone), run.output);
  }
}

TEST_CASE("mixtures end with the same weights on any ranks, strategies and stages" *
          doctest::test_suite("nightly") * doctest::skip()) {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop = with_base("expert_ranks");
  const std::string
      sigmoid =
          "--model.family=glm4_moe --model.ffn=32 --model.experts=8 --model.experts_per_token=2 "
          "--model.expert_ffn=32 "
          "--model.shared_ffn=32 --model.expert_groups=4 --model.top_groups=2 --model.dense_blocks=[0] "
          "--train.steps=4 --checkpoint.save_every=2 ",
      sinks =
          "--model.family=gpt_oss --model.ffn=32 --model.experts=8 --model.experts_per_token=2 "
          "--model.window=7 "
          "--train.router_aux_loss=0.1 --train.steps=4 --checkpoint.save_every=2 ";
  for (const std::string& options :
       {kFromBase, kFromBase + "--precision.compute=bf16 --optimizer.kind=adamw8bit ", kExpertAdapters,
        kExpertAdapters + "--quant.base=nf4 --quant.double=true ", sigmoid, sinks}) {
    const test::Finished whole = workshop.train(1, options + "--run.dir=whole");
    REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
    for (const int ranks : {1, 2, 4, 8}) {
      for (const char* const strategy : {"no_shard", "zero1", "shard_grad_op"})
        check_same(workshop, ranks, str(options, "--parallel.strategy=", strategy), hash_of(whole));
      for (const char* const memory : {"", "--train.recompute=true", "--parallel.offload=true"})
        check_same(workshop, ranks, options + memory, hash_of(whole));
      if (options.find("adamw8bit") == std::string::npos)  // whether moments have 8 bits depends on the unit
        check_same(workshop, ranks, options + "--parallel.wrap=attention_mlp", hash_of(whole));
      check_same(workshop, ranks,
                 str(options, "--parallel.strategy=hybrid --parallel.group_size=", std::max(1, ranks / 2)),
                 hash_of(whole));
    }
    for (const char* const stages : {"--parallel.stages=2", "--parallel.stages=2 --parallel.schedule=gpipe"})
      check_same(workshop, 4, options + stages, hash_of(whole));
  }
}
