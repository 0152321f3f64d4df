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
  const test::Finished merged =
      test::run_command("cd " + workshop.file("") +
                        " && @ckpt merge-adapter base/model first/adapter --out merged --dtype f32");
  REQUIRE_MESSAGE(merged.exit_code == 0, merged.output);
  const test::Finished from_merged =
      workshop.train(1, "--model.init_from=merged --lora.rank=2 --run.dir=from_merged" + kStill);
  CHECK_MESSAGE(hash_of(from_merged) == hash_of(onto), from_merged.output);
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
