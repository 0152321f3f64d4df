// Runs that train adapters, as users start them: resuming, PEFT's files, and what happens to the base.

#include <filesystem>

#include "checkpoint/tensor_difference.h"
#include "checkpoint/tensor_folder.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/workshop.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string hash_of(const test::Finished& run) { return test::after(run.output, "\nweights "); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

const std::string kBase = " --model.init_from=base/model ";
const std::string kLora =
    kBase + "--lora.rank=3 --lora.dropout=0.2 --train.steps=6 --checkpoint.save_every=3 ";
// A step that changes no value.
const std::string kStill = " --train.steps=1 --optimizer.lr=1e-37 --optimizer.weight_decay=0 ";

test::Workshop with_base(const std::string& name) {
  test::Workshop workshop(name);
  const test::Finished base = workshop.train(1, "--train.steps=2 --run.dir=base");
  REQUIRE_MESSAGE(base.exit_code == 0, base.output);
  return workshop;
}

}  // namespace

TEST_CASE(
    "a run on adapters resumes bit for bit on any number of ranks, from a checkpoint without the base") {
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const test::Workshop workshop = with_base("adapter_resume");
  const test::Finished whole = workshop.train(1, kLora + "--run.dir=whole");
  REQUIRE_MESSAGE(hash_of(whole).size() == 64, whole.output);
  const TensorFolder adapter(workshop.file("whole/step-3"), "adapter_model");
  for (const auto& [name, entry] : adapter.entries()) {
    CHECK(name.starts_with("base_model.model."));
    CHECK(has(name, ".lora_"));
  }
  CHECK(!fs::exists(workshop.file("whole/step-3/model.safetensors")));
  CHECK(!fs::exists(workshop.file("whole/model")));
  for (const int ranks : {1, 2, 4}) {
    CAPTURE(ranks);
    const std::string folder = str("resumed", ranks);
    const test::Finished resumed =
        workshop.train(ranks, kLora + "--resume whole/step-3 --run.dir=" + folder +
                                  " --parallel.strategy=" + (ranks == 2 ? "no_shard" : "full_shard"));
    CHECK_MESSAGE(hash_of(resumed) == hash_of(whole), resumed.output);
    const TensorFolder again(workshop.file(folder + "/adapter"), "adapter_model"),
        once(workshop.file("whole/adapter"), "adapter_model");
    REQUIRE(again.entries().size() == once.entries().size());
    for (const auto& [name, entry] : once.entries()) CHECK(same_bits(*entry, *again.find(name)));
  }
}

TEST_CASE("a run on adapters does not resume on another base") {
  const test::Workshop workshop = with_base("adapter_base");
  const test::Finished other = workshop.train(1, "--train.steps=3 --run.dir=other");
  REQUIRE(other.exit_code == 0);
  REQUIRE(workshop.train(1, kLora + "--run.dir=run").exit_code == 0);
  const test::Finished refused =
      workshop.train(1, kLora + "--run.dir=run --resume latest --model.init_from=other/model");
  CHECK(refused.exit_code != 0);
  CHECK_MESSAGE(has(refused.output, "the adapters were trained on"), refused.output);
}

TEST_CASE("adapters train on random weights, too") {
  const test::Workshop workshop("adapters_on_random");
  const test::Finished run = workshop.train(1, "--lora.rank=2 --lora.targets=.*q_proj --train.steps=1");
  CHECK_MESSAGE(run.exit_code == 0, run.output);
}

TEST_CASE("model.adapter continues an adapter, or merges it into the frozen weights") {
  const test::Workshop workshop = with_base("adapter_continue");
  const test::Finished first = workshop.train(1, kLora + "--run.dir=first");
  REQUIRE_MESSAGE(first.exit_code == 0, first.output);
  const test::Finished still = workshop.train(1, "--model.adapter=first/adapter --run.dir=still" + kStill);
  CHECK_MESSAGE(hash_of(still) == hash_of(first), still.output);
  CHECK_MESSAGE(has(still.output, "to continue"), still.output);

  const test::Finished onto =
      workshop.train(1, kBase + "--model.adapter=first/adapter --lora.rank=2 --run.dir=onto" + kStill);
  REQUIRE_MESSAGE(onto.exit_code == 0, onto.output);
  // No folder is its base until the two are merged.
  CHECK(has(test::read_file(workshop.file("onto/adapter/adapter_config.json")),
            "\"base_model_name_or_path\": null"));
  const test::Finished alone =
      test::run_command("cd " + workshop.file("") + " && @generate onto --device cpu --prompt 1");
  CHECK(alone.exit_code != 0);
  CHECK_MESSAGE(has(alone.output, "null, as after training on top of another adapter"), alone.output);
  const test::Finished merged =
      test::run_command("cd " + workshop.file("") +
                        " && @ckpt merge-adapter base/model first/adapter --out merged --dtype f32");
  REQUIRE_MESSAGE(merged.exit_code == 0, merged.output);
  const test::Finished from_merged =
      workshop.train(1, "--model.init_from=merged --lora.rank=2 --run.dir=from_merged" + kStill);
  CHECK_MESSAGE(hash_of(from_merged) == hash_of(onto), from_merged.output);
}

TEST_CASE("programs take the base that a run recorded, wherever they start, and no other") {
  const test::Workshop workshop = with_base("adapter_recorded");
  REQUIRE(workshop.train(1, "--train.steps=3 --run.dir=other").exit_code == 0);
  REQUIRE(workshop.train(1, kLora + "--optimizer.lr=0.1 --run.dir=run").exit_code == 0);
  const auto in = [&](const std::string& folder, const std::string& command) {
    return test::run_command("cd " + workshop.file(folder) + " && " + command);
  };
  const std::string generate = " --device cpu --temperature 0 --max-new-tokens 8 --prompt '1 2 3'",
                    loss = " corpus.tok --device cpu --seq-len 16", refusal = "is not the base of ";
  const test::Finished here = in("", "@generate run" + generate + " 2>/dev/null");
  CHECK(here.exit_code == 0);
  CHECK(in("run/step-3", "@generate ../../run" + generate + " 2>/dev/null").output == here.output);
  const test::Finished says = in("run", "@generate ." + generate);
  CHECK_MESSAGE(has(says.output, "base      "), says.output);
  // A folder of that name with another model is not taken where the right one can be found.
  REQUIRE(in("", "mkdir -p trap/base && cp -r other/model trap/base/model").exit_code == 0);
  CHECK(in("trap", "@generate ../run" + generate + " 2>/dev/null").output == here.output);
  // The whole project is moved.
  REQUIRE(in("", "mkdir moved && cp -r base run moved && mv base base_away").exit_code == 0);
  CHECK(in("trap", "@generate ../moved/run" + generate + " 2>/dev/null").output == here.output);
  REQUIRE(in("", "rm -r moved && mkdir base && cp -r other/model base/model").exit_code == 0);
  for (const std::string& command :
       {"@generate run" + generate, "@evaluate loss run" + loss,
        std::string("@ckpt merge-adapter run --out out"), std::string("@ckpt merge run out"),
        "@generate base/model --adapter run" + generate,
        std::string("@ckpt merge-adapter base/model run --out out"),
        std::string("@train config.toml --model.adapter=run/adapter --run.dir=on"),
        std::string("@train config.toml --model.adapter=run/adapter --lora.rank=2 --run.dir=on "
                    "--model.init_from=base/model")}) {
    CAPTURE(command);
    const test::Finished refused = in("", command);
    CHECK(refused.exit_code != 0);
    CHECK_MESSAGE(has(refused.output, refusal), refused.output);
    CHECK_MESSAGE(has(refused.output, "the adapter was trained on "), refused.output);
    CHECK(has(refused.output, command.starts_with("@train") ? "set model.init_from" : "--other-base"));
  }
  CHECK(in("", "@generate run --other-base" + generate).exit_code == 0);
  CHECK(in("", "@evaluate loss base/model --adapter run --other-base" + loss).exit_code == 0);
  CHECK(in("", "@ckpt merge-adapter run --out out --other-base").exit_code == 0);
  // An adapter of PEFT records nothing.
  REQUIRE(in("", "cp -r run/adapter peft && rm peft/adapter_base.json").exit_code == 0);
  CHECK(in("", "@generate peft" + generate).exit_code == 0);
  const test::Finished gone = in("", "rm -r base && @generate run" + generate);
  CHECK_MESSAGE(has(gone.output, "which is gone"), gone.output);
}

TEST_CASE("ckpt merge writes a complete model of a run on adapters") {
  const test::Workshop workshop = with_base("adapter_merge");
  REQUIRE(workshop.train(1, kLora + "--optimizer.lr=0.1 --run.dir=run").exit_code == 0);
  const auto run = [&](const std::string& command) {
    const test::Finished finished = test::run_command("cd " + workshop.file("") + " && " + command);
    REQUIRE_MESSAGE(finished.exit_code == 0, finished.output);
    return finished.output;
  };
  run("rm -rf full && @ckpt merge run full");
  CHECK(fs::exists(workshop.file("full/model.safetensors")));
  CHECK(!fs::exists(workshop.file("full/adapter_config.json")));
  const std::string best = run("@ckpt best run");
  const std::string loss = " corpus.tok --device cpu --seq-len 16";
  const auto loss_of = [&](const std::string& model) {
    return std::stod(test::after(run("@evaluate loss " + model + loss), "loss "));
  };
  constexpr double kRounding = 1e-6;  // of an order of sums
  CHECK(loss_of("full") == doctest::Approx(loss_of(best.substr(0, best.find(' ')))).epsilon(kRounding));
}

TEST_CASE("a run without a model yet is read from its latest checkpoint") {
  const test::Workshop workshop = with_base("adapter_live");
  REQUIRE(workshop.train(1, "--train.steps=4 --checkpoint.save_every=2 --run.dir=live").exit_code == 0);
  REQUIRE(workshop.train(1, kLora + "--run.dir=tuned").exit_code == 0);
  const auto generate = [&](const std::string& run) {
    return test::run_command("cd " + workshop.file("") + " && @generate " + run +
                             " --device cpu --temperature 0 --max-new-tokens 4 --prompt '1 2'");
  };
  for (const std::string name : {"live", "tuned"}) {
    const std::string result = name == "live" ? "/model" : "/adapter";
    fs::remove_all(workshop.file(name + result));
    const test::Finished found = generate(name);
    CHECK(found.exit_code == 0);
    CHECK_MESSAGE(has(found.output, "the latest checkpoint: the run has not ended"), found.output);
  }
  for (const char* step : {"live/step-2", "live/step-4"}) fs::remove_all(workshop.file(step));
  CHECK_MESSAGE(has(generate("live").output, "neither a model nor a checkpoint yet"),
                generate("live").output);
}

TEST_CASE("a run that continues after its end is read from its newest checkpoint until it ends again") {
  const test::Workshop workshop = with_base("adapter_again");
  for (const std::string result : {"model", "adapter"}) {
    const std::string options =
        (result == "adapter" ? kLora : "") + "--checkpoint.save_every=1 --run.dir=" + result;
    REQUIRE(workshop.train(1, options + " --train.steps=2").exit_code == 0);
    const auto run = [&](const std::string& command) {
      return test::run_command("cd " + workshop.file("") + " && " + command).output;
    };
    const std::string lost =
        run("{ @train config.toml --resume latest --train.steps=1000000 " + options +
            " >lost.txt 2>&1 & until [ -e " + result +
            "/step-4 ] || ! kill -0 $!; do sleep 0.02; done; kill -KILL $!; wait; tail lost.txt; }");
    CAPTURE(lost);
    const std::string generate =
        "@generate " + result + " --device cpu --temperature 0 --max-new-tokens 4 --prompt '1 2'";
    CHECK(has(run(generate), "the latest checkpoint: the run has not ended"));
    const std::string earlier = result + "/earlier-" + result, last = run("cat " + result + "/latest");
    CHECK(fs::exists(workshop.file(earlier)));
    const int64_t steps = std::stoll(last.substr(last.find('-') + 1)) + 1;
    const test::Finished ended = workshop.train(1, options + str(" --resume latest --train.steps=", steps));
    CHECK_MESSAGE(ended.exit_code == 0, ended.output);
    CHECK(!has(run(generate), "has not ended"));
    CHECK(!fs::exists(workshop.file(earlier)));
  }
}

TEST_CASE("contradictions of adapter settings are refused with the remedy") {
  const test::Workshop workshop = with_base("adapter_refused");
  const auto refused = [&](const std::string& options, const std::string& message) {
    const test::Finished run = workshop.train(1, options);
    CAPTURE(options);
    CHECK(run.exit_code != 0);
    CHECK_MESSAGE(has(run.output, message), run.output);
  };
  refused("--lora.save_modules=[\\\"lm_head\\\"]", "lora.save_modules has no effect without lora.rank");
  refused("--lora.rank=2 --model.trainable=[\\\"*norm*\\\"]",
          "name the modules to train in full in lora.save_modules");
  refused("--lora.rank=2 --lora.targets=[\\\"w1\\\"]", "lora.targets matches no linear layer");
  refused("--lora.rank=2 '--lora.targets=\"(\"'", "is not a regular expression");
  refused("--lora.init=adapter --lora.rank=2", "needs model.adapter");
  refused("--model.adapter=base/model", "adapter_config.json");
  const test::Finished warned =
      workshop.train(1, "--lora.rank=2 --lora.targets=[\\\"q_proj\\\",\\\"w1\\\"] --plan");
  CHECK_MESSAGE(has(warned.output, "\"w1\" matches no module"), warned.output);
}
